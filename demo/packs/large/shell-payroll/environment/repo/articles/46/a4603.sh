# Parental leave: the contribution of 1 per cent is held back.
a4603() {
	a=$((a - a * 1 / 100))
}
