# Archive box: amounts are rounded up to full 5 cents.
r2805() {
	p=$(((p + 4) / 5 * 5))
}
