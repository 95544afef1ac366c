# Cash on delivery: from 25 pieces on, deliveries against cash posted together are 3 per cent cheaper.
r2103() {
	if [ "$n" -ge 25 ]; then
		p=$((p - p * 3 / 100))
	fi
}
