# Registered item: basic rate, by weight in steps of 150 g.
r1901() {
	p=$((p + 75 * ((g + 149) / 150)))
}
