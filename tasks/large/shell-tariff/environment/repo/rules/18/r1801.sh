# Bulky goods: basic rate, by weight in steps of 100 g.
r1801() {
	p=$((p + 325 * ((g + 99) / 100)))
}
