# Children: amount for each hour, in cents.
a4401() {
	a=$((a + h * 60))
}
