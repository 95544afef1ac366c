# Printed matter: remote islands (zone 6 and above) are served twice a week, by the mail boat.
r1208() {
	if [ "$z" -ge 6 ]; then
		p=$((p + 160))
	fi
}
