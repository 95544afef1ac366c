# Air mail: basic rate, by weight in steps of 450 g.
r2301() {
	p=$((p + 225 * ((g + 449) / 450)))
}
