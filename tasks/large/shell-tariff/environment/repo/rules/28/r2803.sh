# Archive box: never less than the least charge, whatever it weighs.
r2803() {
	if [ "$p" -lt 220 ]; then
		p=220
	fi
}
