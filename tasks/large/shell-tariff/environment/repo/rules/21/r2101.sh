# Cash on delivery: basic rate, by weight in steps of 200 g.
r2101() {
	p=$((p + 380 * ((g + 199) / 200)))
}
