# Registered item: in December registered items need extra hands; the season has its price.
r1906() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 30))
	fi
}
