# Sea mail: amounts are rounded up to full 5 cents.
r2406() {
	p=$(((p + 4) / 5 * 5))
}
