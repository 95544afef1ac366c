# Shift change: each dependant adds a little.
a3708() {
	a=$((a + k * 2150))
}
