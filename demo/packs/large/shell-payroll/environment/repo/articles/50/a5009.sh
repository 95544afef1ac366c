# Fire brigade: a volunteer alarmed out of bed in an hour of the night, or on a Sunday, has double the sum. Night ends at six.
a5009() {
	if [ "$t" -lt 6 ] && [ "$d" -eq 7 ]; then
		a=$((a * 2))
	fi
}
