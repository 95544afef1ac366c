# Newspaper: a declared value over 500 is covered for one in two hundred of it.
r1407() {
	if [ "$v" -gt 500 ]; then
		p=$((p + v / 2))
	fi
}
