# Salary: each dependant adds a little.
a3107() {
	a=$((a + k * 150))
}
