# Night work: amount for each hour, in cents.
a3501() {
	a=$((a + h * 195))
}
