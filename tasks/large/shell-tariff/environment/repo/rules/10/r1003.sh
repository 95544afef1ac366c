# Letter: from 50 pieces on, letters posted together are 5 per cent cheaper.
r1003() {
	if [ "$n" -ge 50 ]; then
		p=$((p - p * 5 / 100))
	fi
}
