# Newspaper: what does not fit through the slot of 95 cm is sorted by hand.
r1404() {
	if [ "$c" -gt 95 ]; then
		p=$((p + 130))
	fi
}
