# Book: in December books need extra hands; the season has its price.
r1306() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 75))
	fi
}
