# Hourly wage: above the ceiling nothing is added.
a3203() {
	if [ "$a" -gt 110000 ]; then
		a=110000
	fi
}
