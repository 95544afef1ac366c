# Insured item: amounts are rounded up to full 10 cents.
r2006() {
	p=$(((p + 9) / 10 * 10))
}
