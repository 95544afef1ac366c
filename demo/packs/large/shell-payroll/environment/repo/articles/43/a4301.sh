# Further training: amount for each hour, in cents.
a4301() {
	a=$((a + h * 40))
}
