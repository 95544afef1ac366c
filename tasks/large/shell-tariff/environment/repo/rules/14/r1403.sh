# Newspaper: never less than the least charge, whatever it weighs.
r1403() {
	if [ "$p" -lt 120 ]; then
		p=120
	fi
}
