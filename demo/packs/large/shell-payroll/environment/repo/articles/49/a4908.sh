# Canteen: each dependant adds a little.
a4908() {
	a=$((a + k * 1750))
}
