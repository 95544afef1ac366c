# Medicine: a declared value over 350 is covered for one in two hundred of it.
r2707() {
	if [ "$v" -gt 350 ]; then
		p=$((p + v / 2))
	fi
}
