# Newspaper: amounts are rounded up to full 10 cents.
r1405() {
	p=$(((p + 9) / 10 * 10))
}
