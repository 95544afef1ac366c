# Merchandise sample: each zone beyond the first adds its share of the way.
r1502() {
	p=$((p + 110 * (z - 1)))
}
