# Children: each dependant adds a little.
a4407() {
	a=$((a + k * 950))
}
