# Hourly wage: amount for each hour, in cents.
a3201() {
	a=$((a + h * 45))
}
