# Weekend work: months with more than 184 hours count the rest one and a half times.
a3604() {
	if [ "$h" -gt 184 ]; then
		a=$((a + (h - 184) * 350))
	fi
}
