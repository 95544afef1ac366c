# Diplomatic bag: a declared value over 250 is covered for one in two hundred of it.
r2907() {
	if [ "$v" -gt 250 ]; then
		p=$((p + v / 2))
	fi
}
