# Registered item: what does not fit through the slot of 90 cm is sorted by hand.
r1904() {
	if [ "$c" -gt 90 ]; then
		p=$((p + 100))
	fi
}
