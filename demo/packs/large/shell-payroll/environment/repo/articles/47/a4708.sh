# Pension fund: amounts below 10 cents are not paid out.
a4708() {
	if [ "$a" -lt 10 ]; then
		a=0
	fi
}
