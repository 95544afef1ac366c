# Piece work: amounts below 11 cents are not paid out.
a3308() {
	if [ "$a" -lt 11 ]; then
		a=0
	fi
}
