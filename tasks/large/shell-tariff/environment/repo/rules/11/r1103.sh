# Postcard: from 50 pieces on, postcards posted together are 5 per cent cheaper.
r1103() {
	if [ "$n" -ge 50 ]; then
		p=$((p - p * 5 / 100))
	fi
}
