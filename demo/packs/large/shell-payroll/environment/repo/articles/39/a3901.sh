# Board and lodging: amount for each hour, in cents.
a3901() {
	a=$((a + h * 25))
}
