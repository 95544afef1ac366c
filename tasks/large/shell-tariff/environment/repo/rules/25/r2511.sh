# Live animal: day-old chicks are handed out the same evening.
r2511() {
	if [ "$n" -gt 20 ]; then
		p=$((p + 140))
	fi
}
