# Sea mail: from 20 pieces on, items that go by ship posted together are 3 per cent cheaper.
r2403() {
	if [ "$n" -ge 20 ]; then
		p=$((p - p * 3 / 100))
	fi
}
