# Shift change: amount for each hour, in cents.
a3701() {
	a=$((a + h * 85))
}
