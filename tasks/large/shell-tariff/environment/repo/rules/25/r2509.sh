# Live animal: feed for the way, where it takes more than two days.
r2509() {
	if [ "$z" -ge 5 ]; then
		p=$((p + 75))
	fi
}
