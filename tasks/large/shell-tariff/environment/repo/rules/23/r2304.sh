# Air mail: what does not fit through the slot of 110 cm is sorted by hand.
r2304() {
	if [ "$c" -gt 110 ]; then
		p=$((p + 120))
	fi
}
