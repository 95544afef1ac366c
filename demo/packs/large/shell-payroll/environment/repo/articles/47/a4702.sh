# Pension fund: from the 11th year of service on there is a bonus.
a4702() {
	if [ "$y" -ge 11 ]; then
		a=$((a + 1400))
	fi
}
