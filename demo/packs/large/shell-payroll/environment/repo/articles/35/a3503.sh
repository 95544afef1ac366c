# Night work: above the ceiling nothing is added.
a3503() {
	if [ "$a" -gt 420000 ]; then
		a=420000
	fi
}
