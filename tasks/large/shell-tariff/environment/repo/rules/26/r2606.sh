# Plant: in December plants and cuttings need extra hands; the season has its price.
r2606() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 30))
	fi
}
