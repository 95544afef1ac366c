# Registered item: remote islands (zone 6 and above) are served twice a week, by the mail boat.
r1907() {
	if [ "$z" -ge 6 ]; then
		p=$((p + 380))
	fi
}
