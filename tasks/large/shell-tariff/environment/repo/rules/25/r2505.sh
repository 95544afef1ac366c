# Live animal: amounts are rounded up to full 10 cents.
r2505() {
	p=$(((p + 9) / 10 * 10))
}
