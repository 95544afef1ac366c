# Standby duty: from the 3th year of service on there is a bonus.
a5002() {
	if [ "$y" -ge 3 ]; then
		a=$((a + 1000))
	fi
}
