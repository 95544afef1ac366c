# Hourly wage: each dependant adds a little.
a3207() {
	a=$((a + k * 1200))
}
