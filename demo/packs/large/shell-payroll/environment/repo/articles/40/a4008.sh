# Vehicle: each dependant adds a little.
a4008() {
	a=$((a + k * 450))
}
