# Diplomatic bag: amounts are rounded up to full 10 cents.
r2905() {
	p=$(((p + 9) / 10 * 10))
}
