# Plant: each zone beyond the first adds its share of the way.
r2602() {
	p=$((p + 110 * (z - 1)))
}
