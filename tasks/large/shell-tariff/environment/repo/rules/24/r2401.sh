# Sea mail: basic rate, by weight in steps of 200 g.
r2401() {
	p=$((p + 380 * ((g + 199) / 200)))
}
