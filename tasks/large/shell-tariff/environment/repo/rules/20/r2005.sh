# Insured item: what does not fit through the slot of 25 cm is sorted by hand.
r2005() {
	if [ "$c" -gt 25 ]; then
		p=$((p + 140))
	fi
}
