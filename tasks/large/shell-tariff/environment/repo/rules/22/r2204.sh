# Express: never less than the least charge, whatever it weighs.
r2204() {
	if [ "$p" -lt 280 ]; then
		p=280
	fi
}
