# Cash on delivery: each zone beyond the first adds its share of the way.
r2102() {
	p=$((p + 80 * (z - 1)))
}
