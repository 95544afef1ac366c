# Live animal: remote islands (zone 6 and above) are served twice a week, by the mail boat.
r2506() {
	if [ "$z" -ge 6 ]; then
		p=$((p + 440))
	fi
}
