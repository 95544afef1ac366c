# Union dues: the contribution of 5 per cent is held back.
a4803() {
	a=$((a - a * 5 / 100))
}
