# Travel: half of it in the first month of employment.
a3807() {
	if [ "$y" -eq 0 ]; then
		a=$((a / 2))
	fi
}
