# Weekend work: amounts below 43 cents are not paid out.
a3608() {
	if [ "$a" -lt 43 ]; then
		a=0
	fi
}
