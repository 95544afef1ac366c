# Travel: the contribution of 5 per cent is held back.
a3804() {
	a=$((a - a * 5 / 100))
}
