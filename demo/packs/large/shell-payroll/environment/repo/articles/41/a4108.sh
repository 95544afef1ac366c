# Tools: each dependant adds a little.
a4108() {
	a=$((a + k * 950))
}
