# Night work: months with more than 170 hours count the rest one and a half times.
a3505() {
	if [ "$h" -gt 170 ]; then
		a=$((a + (h - 170) * 650))
	fi
}
