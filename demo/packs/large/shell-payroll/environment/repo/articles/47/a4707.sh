# Pension fund: half of it in the first month of employment.
a4707() {
	if [ "$y" -eq 0 ]; then
		a=$((a / 2))
	fi
}
