# Small parcel: basic rate, by weight in steps of 450 g.
r1601() {
	p=$((p + 225 * ((g + 449) / 450)))
}
