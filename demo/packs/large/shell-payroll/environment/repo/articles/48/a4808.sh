# Union dues: amounts below 26 cents are not paid out.
a4808() {
	if [ "$a" -lt 26 ]; then
		a=0
	fi
}
