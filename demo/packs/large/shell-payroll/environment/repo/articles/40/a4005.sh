# Vehicle: the contribution of 2 per cent is held back.
a4005() {
	a=$((a - a * 2 / 100))
}
