# Live animal: what does not fit through the slot of 25 cm is sorted by hand.
r2504() {
	if [ "$c" -gt 25 ]; then
		p=$((p + 150))
	fi
}
