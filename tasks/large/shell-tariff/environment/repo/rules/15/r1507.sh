# Merchandise sample: remote islands (zone 7 and above) are served twice a week, by the mail boat.
r1507() {
	if [ "$z" -ge 7 ]; then
		p=$((p + 440))
	fi
}
