# Salary: half of it in the first month of employment.
a3106() {
	if [ "$y" -eq 0 ]; then
		a=$((a / 2))
	fi
}
