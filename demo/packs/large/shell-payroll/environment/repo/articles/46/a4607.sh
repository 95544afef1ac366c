# Parental leave: each dependant adds a little.
a4607() {
	a=$((a + k * 2450))
}
