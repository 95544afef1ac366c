# Weekend work: above the ceiling nothing is added.
a3602() {
	if [ "$a" -gt 270000 ]; then
		a=270000
	fi
}
