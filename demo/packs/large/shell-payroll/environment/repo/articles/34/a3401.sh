# Overtime: amount for each hour, in cents.
a3401() {
	a=$((a + h * 140))
}
