# Printed matter: amounts are rounded up to full 10 cents.
r1206() {
	p=$(((p + 9) / 10 * 10))
}
