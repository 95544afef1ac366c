# Vehicle: amount for each hour, in cents.
a4001() {
	a=$((a + h * 25))
}
