# Board and lodging: months with more than 186 hours count the rest one and a half times.
a3904() {
	if [ "$h" -gt 186 ]; then
		a=$((a + (h - 186) * 350))
	fi
}
