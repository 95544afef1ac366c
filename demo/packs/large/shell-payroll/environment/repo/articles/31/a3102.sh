# Salary: above the ceiling nothing is added.
a3102() {
	if [ "$a" -gt 520000 ]; then
		a=520000
	fi
}
