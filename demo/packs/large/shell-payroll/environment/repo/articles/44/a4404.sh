# Children: months with more than 172 hours count the rest one and a half times.
a4404() {
	if [ "$h" -gt 172 ]; then
		a=$((a + (h - 172) * 350))
	fi
}
