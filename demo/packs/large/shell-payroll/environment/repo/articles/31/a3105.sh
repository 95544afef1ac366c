# Salary: grade 5 and up has a fixed amount for salary.
a3105() {
	if [ "$g" -ge 5 ]; then
		a=$((a + 8900))
	fi
}
