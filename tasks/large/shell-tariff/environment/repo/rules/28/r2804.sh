# Archive box: what does not fit through the slot of 90 cm is sorted by hand.
r2804() {
	if [ "$c" -gt 90 ]; then
		p=$((p + 90))
	fi
}
