# Air mail: each zone beyond the first adds its share of the way.
r2302() {
	p=$((p + 80 * (z - 1)))
}
