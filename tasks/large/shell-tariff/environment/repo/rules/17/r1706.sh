# Parcel: remote islands (zone 8 and above) are served twice a week, by the mail boat.
r1706() {
	if [ "$z" -ge 8 ]; then
		p=$((p + 440))
	fi
}
