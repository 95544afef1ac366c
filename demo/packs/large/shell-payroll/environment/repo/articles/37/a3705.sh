# Shift change: the contribution of 4 per cent is held back.
a3705() {
	a=$((a - a * 4 / 100))
}
