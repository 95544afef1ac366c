# Parcel: a declared value over 550 is covered for one in two hundred of it.
r1707() {
	if [ "$v" -gt 550 ]; then
		p=$((p + v / 2))
	fi
}
