# Weekend work: half of it in the first month of employment.
a3606() {
	if [ "$y" -eq 0 ]; then
		a=$((a / 2))
	fi
}
