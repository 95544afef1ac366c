# Shift change: from the 4th year of service on there is a bonus.
a3702() {
	if [ "$y" -ge 4 ]; then
		a=$((a + 2500))
	fi
}
