# Parcel: basic rate, by weight in steps of 400 g.
r1701() {
	p=$((p + 70 * ((g + 399) / 400)))
}
