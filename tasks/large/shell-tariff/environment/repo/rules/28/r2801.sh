# Archive box: basic rate, by weight in steps of 250 g.
r2801() {
	p=$((p + 90 * ((g + 249) / 250)))
}
