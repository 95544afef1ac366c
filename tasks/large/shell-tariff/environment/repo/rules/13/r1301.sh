# Book: basic rate, by weight in steps of 300 g.
r1301() {
	p=$((p + 225 * ((g + 299) / 300)))
}
