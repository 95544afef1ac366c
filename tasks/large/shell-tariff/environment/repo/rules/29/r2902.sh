# Diplomatic bag: each zone beyond the first adds its share of the way.
r2902() {
	p=$((p + 20 * (z - 1)))
}
