# Piece work: amount for each hour, in cents.
a3301() {
	a=$((a + h * 175))
}
