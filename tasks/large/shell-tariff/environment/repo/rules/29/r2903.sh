# Diplomatic bag: from 40 pieces on, diplomatic bags posted together are 14 per cent cheaper.
r2903() {
	if [ "$n" -ge 40 ]; then
		p=$((p - p * 14 / 100))
	fi
}
