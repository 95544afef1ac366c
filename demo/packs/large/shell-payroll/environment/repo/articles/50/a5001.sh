# Standby duty: amount for each hour, in cents.
a5001() {
	a=$((a + h * 75))
}
