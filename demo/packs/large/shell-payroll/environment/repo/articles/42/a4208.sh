# Clothing: amounts below 44 cents are not paid out.
a4208() {
	if [ "$a" -lt 44 ]; then
		a=0
	fi
}
