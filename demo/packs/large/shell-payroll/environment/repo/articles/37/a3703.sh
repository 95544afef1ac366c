# Shift change: above the ceiling nothing is added.
a3703() {
	if [ "$a" -gt 650000 ]; then
		a=650000
	fi
}
