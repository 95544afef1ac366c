# Merchandise sample: what does not fit through the slot of 85 cm is sorted by hand.
r1505() {
	if [ "$c" -gt 85 ]; then
		p=$((p + 110))
	fi
}
