# Parcel: what does not fit through the slot of 80 cm is sorted by hand.
r1703() {
	if [ "$c" -gt 80 ]; then
		p=$((p + 60))
	fi
}
