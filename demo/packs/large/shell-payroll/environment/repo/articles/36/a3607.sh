# Weekend work: each dependant adds a little.
a3607() {
	a=$((a + k * 250))
}
