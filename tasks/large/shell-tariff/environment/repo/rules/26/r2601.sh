# Plant: basic rate, by weight in steps of 200 g.
r2601() {
	p=$((p + 250 * ((g + 199) / 200)))
}
