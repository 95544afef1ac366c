# Cash on delivery: in December deliveries against cash need extra hands; the season has its price.
r2106() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 65))
	fi
}
