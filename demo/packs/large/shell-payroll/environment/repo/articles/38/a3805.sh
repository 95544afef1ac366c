# Travel: months with more than 174 hours count the rest one and a half times.
a3805() {
	if [ "$h" -gt 174 ]; then
		a=$((a + (h - 174) * 750))
	fi
}
