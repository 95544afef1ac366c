# Insured item: a declared value over 500 is covered for one in two hundred of it.
r2008() {
	if [ "$v" -gt 500 ]; then
		p=$((p + v / 2))
	fi
}
