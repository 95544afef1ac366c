# Air mail: a declared value over 750 is covered for one in two hundred of it.
r2307() {
	if [ "$v" -gt 750 ]; then
		p=$((p + v / 2))
	fi
}
