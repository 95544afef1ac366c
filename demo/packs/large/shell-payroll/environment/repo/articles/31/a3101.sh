# Salary: amount for each hour, in cents.
a3101() {
	a=$((a + h * 60))
}
