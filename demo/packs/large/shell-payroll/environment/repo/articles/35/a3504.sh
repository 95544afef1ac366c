# Night work: the contribution of 8 per cent is held back.
a3504() {
	a=$((a - a * 8 / 100))
}
