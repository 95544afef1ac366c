# Air mail: in December items that fly need extra hands; the season has its price.
r2305() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 80))
	fi
}
