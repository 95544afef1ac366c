# Board and lodging: the contribution of 6 per cent is held back.
a3903() {
	a=$((a - a * 6 / 100))
}
