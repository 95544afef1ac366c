# Cash on delivery: amounts are rounded up to full 10 cents.
r2105() {
	p=$(((p + 9) / 10 * 10))
}
