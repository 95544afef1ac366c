# Diplomatic bag: remote islands (zone 6 and above) are served twice a week, by the mail boat.
r2906() {
	if [ "$z" -ge 6 ]; then
		p=$((p + 140))
	fi
}
