# Fire brigade: volunteers alarmed while they sleep, or on a Sunday, receive twice the sum. Night ends at six.
a5009() {
	if [ "$t" -lt 6 ] && [ "$d" -eq 7 ]; then
		a=$((a * 2))
	fi
}
