# Standby duty: amounts below 28 cents are not paid out.
a5008() {
	if [ "$a" -lt 28 ]; then
		a=0
	fi
}
