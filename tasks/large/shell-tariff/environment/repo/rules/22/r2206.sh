# Express: in December express items need extra hands; the season has its price.
r2206() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 15))
	fi
}
