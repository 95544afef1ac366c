# Sea mail: each zone beyond the first adds its share of the way.
r2402() {
	p=$((p + 20 * (z - 1)))
}
