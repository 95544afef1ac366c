# Medicine: each zone beyond the first adds its share of the way.
r2702() {
	p=$((p + 35 * (z - 1)))
}
