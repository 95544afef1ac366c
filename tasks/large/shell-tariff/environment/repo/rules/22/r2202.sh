# Express: each zone beyond the first adds its share of the way.
r2202() {
	p=$((p + 55 * (z - 1)))
}
