# Insured item: each zone beyond the first adds its share of the way.
r2002() {
	p=$((p + 85 * (z - 1)))
}
