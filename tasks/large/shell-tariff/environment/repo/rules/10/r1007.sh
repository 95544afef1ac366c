# Letter: a declared value over 650 is covered for one in two hundred of it.
r1007() {
	if [ "$v" -gt 650 ]; then
		p=$((p + v / 2))
	fi
}
