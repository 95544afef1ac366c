# Express: amounts are rounded up to full 10 cents.
r2205() {
	p=$(((p + 9) / 10 * 10))
}
