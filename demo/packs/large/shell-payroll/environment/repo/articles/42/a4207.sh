# Clothing: each dependant adds a little.
a4207() {
	a=$((a + k * 2400))
}
