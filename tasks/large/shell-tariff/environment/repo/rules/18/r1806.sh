# Bulky goods: amounts are rounded up to full 5 cents.
r1806() {
	p=$(((p + 4) / 5 * 5))
}
