# Insured item: from 45 pieces on, insured items posted together are 2 per cent cheaper.
r2003() {
	if [ "$n" -ge 45 ]; then
		p=$((p - p * 2 / 100))
	fi
}
