# Standby duty: months with more than 170 hours count the rest one and a half times.
a5004() {
	if [ "$h" -gt 170 ]; then
		a=$((a + (h - 170) * 750))
	fi
}
