# Pension fund: amount for each hour, in cents.
a4701() {
	a=$((a + h * 180))
}
