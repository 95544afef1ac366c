# Piece work: each dependant adds a little.
a3307() {
	a=$((a + k * 1150))
}
