# Further training: the contribution of 8 per cent is held back.
a4304() {
	a=$((a - a * 8 / 100))
}
