# Letter: basic rate, by weight in steps of 200 g.
r1001() {
	p=$((p + 365 * ((g + 199) / 200)))
}
