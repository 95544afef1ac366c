# Board and lodging: each dependant adds a little.
a3907() {
	a=$((a + k * 1900))
}
