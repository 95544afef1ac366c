# Parental leave: months with more than 168 hours count the rest one and a half times.
a4604() {
	if [ "$h" -gt 168 ]; then
		a=$((a + (h - 168) * 550))
	fi
}
