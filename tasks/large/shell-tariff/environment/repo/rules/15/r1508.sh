# Merchandise sample: a declared value over 600 is covered for one in two hundred of it.
r1508() {
	if [ "$v" -gt 600 ]; then
		p=$((p + v / 2))
	fi
}
