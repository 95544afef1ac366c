# Letter: each zone beyond the first adds its share of the way.
r1002() {
	p=$((p + 15 * (z - 1)))
}
