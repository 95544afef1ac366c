# Printed matter: never less than the least charge, whatever it weighs.
r1204() {
	if [ "$p" -lt 130 ]; then
		p=130
	fi
}
