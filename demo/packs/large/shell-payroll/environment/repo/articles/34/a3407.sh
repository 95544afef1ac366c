# Overtime: each dependant adds a little.
a3407() {
	a=$((a + k * 1650))
}
