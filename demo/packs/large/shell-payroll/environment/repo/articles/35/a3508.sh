# Night work: amounts below 7 cents are not paid out.
a3508() {
	if [ "$a" -lt 7 ]; then
		a=0
	fi
}
