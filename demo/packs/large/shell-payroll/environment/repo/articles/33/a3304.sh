# Piece work: the contribution of 5 per cent is held back.
a3304() {
	a=$((a - a * 5 / 100))
}
