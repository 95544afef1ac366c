# Live animal: never less than the least charge, whatever it weighs.
r2503() {
	if [ "$p" -lt 170 ]; then
		p=170
	fi
}
