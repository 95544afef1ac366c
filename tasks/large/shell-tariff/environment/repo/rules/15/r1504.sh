# Merchandise sample: never less than the least charge, whatever it weighs.
r1504() {
	if [ "$p" -lt 195 ]; then
		p=195
	fi
}
