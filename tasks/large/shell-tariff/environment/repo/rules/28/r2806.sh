# Archive box: in December archive boxes need extra hands; the season has its price.
r2806() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 5))
	fi
}
