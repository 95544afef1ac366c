# Canteen: from the 5th year of service on there is a bonus.
a4902() {
	if [ "$y" -ge 5 ]; then
		a=$((a + 1800))
	fi
}
