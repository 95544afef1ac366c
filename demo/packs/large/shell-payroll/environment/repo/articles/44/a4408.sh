# Children: amounts below 35 cents are not paid out.
a4408() {
	if [ "$a" -lt 35 ]; then
		a=0
	fi
}
