# Book: a declared value over 850 is covered for one in two hundred of it.
r1307() {
	if [ "$v" -gt 850 ]; then
		p=$((p + v / 2))
	fi
}
