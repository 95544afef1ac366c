# Postcard: basic rate, by weight in steps of 50 g.
r1101() {
	p=$((p + 285 * ((g + 49) / 50)))
}
