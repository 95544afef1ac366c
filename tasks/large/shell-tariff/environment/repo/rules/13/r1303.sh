# Book: never less than the least charge, whatever it weighs.
r1303() {
	if [ "$p" -lt 145 ]; then
		p=145
	fi
}
