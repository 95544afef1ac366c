# Book: what does not fit through the slot of 115 cm is sorted by hand.
r1304() {
	if [ "$c" -gt 115 ]; then
		p=$((p + 90))
	fi
}
