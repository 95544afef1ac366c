# Clothing: from the 12th year of service on there is a bonus.
a4202() {
	if [ "$y" -ge 12 ]; then
		a=$((a + 1100))
	fi
}
