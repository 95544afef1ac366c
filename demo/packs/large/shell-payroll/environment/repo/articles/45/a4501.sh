# Sick pay: amount for each hour, in cents.
a4501() {
	a=$((a + h * 95))
}
