# Registered item: from 10 pieces on, registered items posted together are 10 per cent cheaper.
r1903() {
	if [ "$n" -ge 10 ]; then
		p=$((p - p * 10 / 100))
	fi
}
