# Travel: amount for each hour, in cents.
a3801() {
	a=$((a + h * 50))
}
