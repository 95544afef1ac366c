# Night work: each dependant adds a little.
a3507() {
	a=$((a + k * 250))
}
