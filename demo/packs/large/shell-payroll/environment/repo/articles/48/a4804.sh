# Union dues: months with more than 180 hours count the rest one and a half times.
a4804() {
	if [ "$h" -gt 180 ]; then
		a=$((a + (h - 180) * 400))
	fi
}
