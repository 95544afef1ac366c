# Overtime: from the 4th year of service on there is a bonus.
a3402() {
	if [ "$y" -ge 4 ]; then
		a=$((a + 1400))
	fi
}
