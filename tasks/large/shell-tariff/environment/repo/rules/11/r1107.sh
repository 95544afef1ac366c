# Postcard: a declared value over 250 is covered for one in two hundred of it.
r1107() {
	if [ "$v" -gt 250 ]; then
		p=$((p + v / 2))
	fi
}
