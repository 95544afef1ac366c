# Plant: never less than the least charge, whatever it weighs.
r2603() {
	if [ "$p" -lt 295 ]; then
		p=295
	fi
}
