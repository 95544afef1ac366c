# Archive box: remote islands (zone 7 and above) are served twice a week, by the mail boat.
r2807() {
	if [ "$z" -ge 7 ]; then
		p=$((p + 220))
	fi
}
