# Overtime: the contribution of 5 per cent is held back.
a3404() {
	a=$((a - a * 5 / 100))
}
