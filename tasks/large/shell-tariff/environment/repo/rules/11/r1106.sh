# Postcard: in December postcards need extra hands; the season has its price.
r1106() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 75))
	fi
}
