# Book: amounts are rounded up to full 5 cents.
r1305() {
	p=$(((p + 4) / 5 * 5))
}
