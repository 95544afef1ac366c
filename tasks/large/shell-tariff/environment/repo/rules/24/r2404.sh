# Sea mail: never less than the least charge, whatever it weighs.
r2404() {
	if [ "$p" -lt 180 ]; then
		p=180
	fi
}
