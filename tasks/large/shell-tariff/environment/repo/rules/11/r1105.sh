# Postcard: what does not fit through the slot of 70 cm is sorted by hand.
r1105() {
	if [ "$c" -gt 70 ]; then
		p=$((p + 160))
	fi
}
