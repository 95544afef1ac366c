# Archive box: each zone beyond the first adds its share of the way.
r2802() {
	p=$((p + 75 * (z - 1)))
}
