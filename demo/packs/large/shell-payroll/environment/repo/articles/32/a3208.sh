# Hourly wage: amounts below 25 cents are not paid out.
a3208() {
	if [ "$a" -lt 25 ]; then
		a=0
	fi
}
