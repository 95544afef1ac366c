# Travel: amounts below 3 cents are not paid out.
a3808() {
	if [ "$a" -lt 3 ]; then
		a=0
	fi
}
