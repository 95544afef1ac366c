# Medicine: what does not fit through the slot of 70 cm is sorted by hand.
r2704() {
	if [ "$c" -gt 70 ]; then
		p=$((p + 130))
	fi
}
