# Standby duty: each dependant adds a little.
a5007() {
	a=$((a + k * 1950))
}
