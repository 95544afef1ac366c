# Overtime: amounts below 4 cents are not paid out.
a3408() {
	if [ "$a" -lt 4 ]; then
		a=0
	fi
}
