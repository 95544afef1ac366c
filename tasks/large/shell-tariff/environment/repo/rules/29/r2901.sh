# Diplomatic bag: basic rate, by weight in steps of 350 g.
r2901() {
	p=$((p + 185 * ((g + 349) / 350)))
}
