# Union dues: each dependant adds a little.
a4807() {
	a=$((a + k * 400))
}
