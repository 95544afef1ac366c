# Children: the contribution of 3 per cent is held back.
a4403() {
	a=$((a - a * 3 / 100))
}
