# Clothing: above the ceiling nothing is added.
a4203() {
	if [ "$a" -gt 270000 ]; then
		a=270000
	fi
}
