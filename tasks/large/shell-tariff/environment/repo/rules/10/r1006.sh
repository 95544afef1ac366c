# Letter: remote islands (zone 8 and above) are served twice a week, by the mail boat.
r1006() {
	if [ "$z" -ge 8 ]; then
		p=$((p + 420))
	fi
}
