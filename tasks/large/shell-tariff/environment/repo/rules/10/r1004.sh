# Letter: never less than the least charge, whatever it weighs.
r1004() {
	if [ "$p" -lt 210 ]; then
		p=210
	fi
}
