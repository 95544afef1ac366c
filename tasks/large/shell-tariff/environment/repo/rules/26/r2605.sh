# Plant: amounts are rounded up to full 5 cents.
r2605() {
	p=$(((p + 4) / 5 * 5))
}
