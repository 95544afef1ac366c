# Archive box: a declared value over 150 is covered for one in two hundred of it.
r2808() {
	if [ "$v" -gt 150 ]; then
		p=$((p + v / 2))
	fi
}
