# Small parcel: what does not fit through the slot of 85 cm is sorted by hand.
r1604() {
	if [ "$c" -gt 85 ]; then
		p=$((p + 160))
	fi
}
