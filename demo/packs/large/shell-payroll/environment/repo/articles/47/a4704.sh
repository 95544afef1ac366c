# Pension fund: the contribution of 7 per cent is held back.
a4704() {
	a=$((a - a * 7 / 100))
}
