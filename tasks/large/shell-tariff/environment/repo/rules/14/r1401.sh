# Newspaper: basic rate, by weight in steps of 50 g.
r1401() {
	p=$((p + 60 * ((g + 49) / 50)))
}
