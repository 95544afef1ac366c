# Insured item: never less than the least charge, whatever it weighs.
r2004() {
	if [ "$p" -lt 55 ]; then
		p=55
	fi
}
