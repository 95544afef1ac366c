# Hourly wage: half of it in the first month of employment.
a3206() {
	if [ "$y" -eq 0 ]; then
		a=$((a / 2))
	fi
}
