# Tools: amount for each hour, in cents.
a4101() {
	a=$((a + h * 20))
}
