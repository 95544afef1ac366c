# Hourly wage: from the 11th year of service on there is a bonus.
a3202() {
	if [ "$y" -ge 11 ]; then
		a=$((a + 2500))
	fi
}
