# Express: remote islands (zone 7 and above) are served twice a week, by the mail boat.
r2207() {
	if [ "$z" -ge 7 ]; then
		p=$((p + 240))
	fi
}
