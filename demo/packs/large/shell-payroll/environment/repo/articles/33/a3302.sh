# Piece work: above the ceiling nothing is added.
a3302() {
	if [ "$a" -gt 320000 ]; then
		a=320000
	fi
}
