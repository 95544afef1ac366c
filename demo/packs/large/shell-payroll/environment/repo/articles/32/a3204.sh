# Hourly wage: the contribution of 7 per cent is held back.
a3204() {
	a=$((a - a * 7 / 100))
}
