# Plant: what does not fit through the slot of 50 cm is sorted by hand.
r2604() {
	if [ "$c" -gt 50 ]; then
		p=$((p + 80))
	fi
}
