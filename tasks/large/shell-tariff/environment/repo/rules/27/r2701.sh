# Medicine: basic rate, by weight in steps of 50 g.
r2701() {
	p=$((p + 150 * ((g + 49) / 50)))
}
