# Postcard: never less than the least charge, whatever it weighs.
r1104() {
	if [ "$p" -lt 95 ]; then
		p=95
	fi
}
