# Cash on delivery: never less than the least charge, whatever it weighs.
r2104() {
	if [ "$p" -lt 65 ]; then
		p=65
	fi
}
