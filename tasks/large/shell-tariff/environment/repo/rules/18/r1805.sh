# Bulky goods: what does not fit through the slot of 60 cm is sorted by hand.
r1805() {
	if [ "$c" -gt 60 ]; then
		p=$((p + 180))
	fi
}
