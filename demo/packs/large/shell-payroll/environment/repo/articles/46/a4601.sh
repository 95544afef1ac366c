# Parental leave: amount for each hour, in cents.
a4601() {
	a=$((a + h * 45))
}
