# Merchandise sample: from 40 pieces on, samples posted together are 6 per cent cheaper.
r1503() {
	if [ "$n" -ge 40 ]; then
		p=$((p - p * 6 / 100))
	fi
}
