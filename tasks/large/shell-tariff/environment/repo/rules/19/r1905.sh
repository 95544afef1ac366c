# Registered item: amounts are rounded up to full 5 cents.
r1905() {
	p=$(((p + 4) / 5 * 5))
}
