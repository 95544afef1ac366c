# Parental leave: amounts below 5 cents are not paid out.
a4608() {
	if [ "$a" -lt 5 ]; then
		a=0
	fi
}
