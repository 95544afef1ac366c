# Printed matter: what does not fit through the slot of 75 cm is sorted by hand.
r1205() {
	if [ "$c" -gt 75 ]; then
		p=$((p + 90))
	fi
}
