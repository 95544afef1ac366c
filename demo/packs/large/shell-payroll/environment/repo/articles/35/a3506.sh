# Night work: half of it in the first month of employment.
a3506() {
	if [ "$y" -eq 0 ]; then
		a=$((a / 2))
	fi
}
