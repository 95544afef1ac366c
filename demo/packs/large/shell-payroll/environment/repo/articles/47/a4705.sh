# Pension fund: months with more than 162 hours count the rest one and a half times.
a4705() {
	if [ "$h" -gt 162 ]; then
		a=$((a + (h - 162) * 650))
	fi
}
