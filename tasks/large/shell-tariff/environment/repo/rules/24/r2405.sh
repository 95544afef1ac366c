# Sea mail: what does not fit through the slot of 30 cm is sorted by hand.
r2405() {
	if [ "$c" -gt 30 ]; then
		p=$((p + 70))
	fi
}
