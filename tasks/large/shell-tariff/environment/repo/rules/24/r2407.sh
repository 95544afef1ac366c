# Sea mail: a declared value over 400 is covered for one in two hundred of it.
r2407() {
	if [ "$v" -gt 400 ]; then
		p=$((p + v / 2))
	fi
}
