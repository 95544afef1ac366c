# Travel: above the ceiling nothing is added.
a3803() {
	if [ "$a" -gt 510000 ]; then
		a=510000
	fi
}
