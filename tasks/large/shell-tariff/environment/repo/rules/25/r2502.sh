# Live animal: from 50 pieces on, live animals posted together are 4 per cent cheaper.
r2502() {
	if [ "$n" -ge 50 ]; then
		p=$((p - p * 4 / 100))
	fi
}
