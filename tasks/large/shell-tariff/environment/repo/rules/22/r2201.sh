# Express: basic rate, by weight in steps of 350 g.
r2201() {
	p=$((p + 245 * ((g + 349) / 350)))
}
