# Bulky goods: each zone beyond the first adds its share of the way.
r1802() {
	p=$((p + 105 * (z - 1)))
}
