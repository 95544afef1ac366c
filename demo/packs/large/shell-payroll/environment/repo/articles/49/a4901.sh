# Canteen: amount for each hour, in cents.
a4901() {
	a=$((a + h * 120))
}
