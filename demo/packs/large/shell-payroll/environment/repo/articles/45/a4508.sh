# Sick pay: amounts below 26 cents are not paid out.
a4508() {
	if [ "$a" -lt 26 ]; then
		a=0
	fi
}
