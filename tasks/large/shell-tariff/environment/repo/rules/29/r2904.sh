# Diplomatic bag: what does not fit through the slot of 75 cm is sorted by hand.
r2904() {
	if [ "$c" -gt 75 ]; then
		p=$((p + 40))
	fi
}
