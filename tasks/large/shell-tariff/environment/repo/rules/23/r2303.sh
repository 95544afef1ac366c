# Air mail: never less than the least charge, whatever it weighs.
r2303() {
	if [ "$p" -lt 230 ]; then
		p=230
	fi
}
