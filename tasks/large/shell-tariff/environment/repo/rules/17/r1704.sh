# Parcel: amounts are rounded up to full 10 cents.
r1704() {
	p=$(((p + 9) / 10 * 10))
}
