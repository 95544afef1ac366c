# Sick pay: each dependant adds a little.
a4507() {
	a=$((a + k * 1500))
}
