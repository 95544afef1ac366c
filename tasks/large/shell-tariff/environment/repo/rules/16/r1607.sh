# Small parcel: a declared value over 450 is covered for one in two hundred of it.
r1607() {
	if [ "$v" -gt 450 ]; then
		p=$((p + v / 2))
	fi
}
