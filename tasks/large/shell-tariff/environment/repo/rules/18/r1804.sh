# Bulky goods: never less than the least charge, whatever it weighs.
r1804() {
	if [ "$p" -lt 285 ]; then
		p=285
	fi
}
