# Small parcel: amounts are rounded up to full 5 cents.
r1605() {
	p=$(((p + 4) / 5 * 5))
}
