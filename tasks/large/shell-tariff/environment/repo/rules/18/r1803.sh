# Bulky goods: from 40 pieces on, bulky goods posted together are 3 per cent cheaper.
r1803() {
	if [ "$n" -ge 40 ]; then
		p=$((p - p * 3 / 100))
	fi
}
