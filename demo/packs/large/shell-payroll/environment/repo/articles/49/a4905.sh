# Canteen: months with more than 166 hours count the rest one and a half times.
a4905() {
	if [ "$h" -gt 166 ]; then
		a=$((a + (h - 166) * 400))
	fi
}
