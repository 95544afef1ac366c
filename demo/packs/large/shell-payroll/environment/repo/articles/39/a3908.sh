# Board and lodging: amounts below 29 cents are not paid out.
a3908() {
	if [ "$a" -lt 29 ]; then
		a=0
	fi
}
