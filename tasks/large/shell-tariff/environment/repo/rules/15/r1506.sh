# Merchandise sample: amounts are rounded up to full 10 cents.
r1506() {
	p=$(((p + 9) / 10 * 10))
}
