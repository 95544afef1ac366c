# Cash on delivery: remote islands (zone 8 and above) are served twice a week, by the mail boat.
r2107() {
	if [ "$z" -ge 8 ]; then
		p=$((p + 560))
	fi
}
