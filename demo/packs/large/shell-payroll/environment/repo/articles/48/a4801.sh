# Union dues: amount for each hour, in cents.
a4801() {
	a=$((a + h * 50))
}
