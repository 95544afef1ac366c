# Salary: amounts below 46 cents are not paid out.
a3108() {
	if [ "$a" -lt 46 ]; then
		a=0
	fi
}
