# Small parcel: each zone beyond the first adds its share of the way.
r1602() {
	p=$((p + 115 * (z - 1)))
}
