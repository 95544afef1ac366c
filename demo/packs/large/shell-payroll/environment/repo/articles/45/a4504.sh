# Sick pay: the contribution of 1 per cent is held back.
a4504() {
	a=$((a - a * 1 / 100))
}
