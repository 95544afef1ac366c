# Weekend work: amount for each hour, in cents.
a3601() {
	a=$((a + h * 105))
}
