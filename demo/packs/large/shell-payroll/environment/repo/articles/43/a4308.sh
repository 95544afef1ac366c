# Further training: amounts below 29 cents are not paid out.
a4308() {
	if [ "$a" -lt 29 ]; then
		a=0
	fi
}
