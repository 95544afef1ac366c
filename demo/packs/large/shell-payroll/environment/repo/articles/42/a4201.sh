# Clothing: amount for each hour, in cents.
a4201() {
	a=$((a + h * 25))
}
