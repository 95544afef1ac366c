# Vehicle: months with more than 164 hours count the rest one and a half times.
a4006() {
	if [ "$h" -gt 164 ]; then
		a=$((a + (h - 164) * 350))
	fi
}
