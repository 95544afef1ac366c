# Live animal: basic rate, by weight in steps of 400 g.
r2501() {
	p=$((p + 65 * ((g + 399) / 400)))
}
