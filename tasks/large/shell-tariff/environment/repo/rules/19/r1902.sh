# Registered item: each zone beyond the first adds its share of the way.
r1902() {
	p=$((p + 100 * (z - 1)))
}
