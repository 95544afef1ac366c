# Merchandise sample: basic rate, by weight in steps of 100 g.
r1501() {
	p=$((p + 175 * ((g + 99) / 100)))
}
