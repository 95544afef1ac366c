# Letter: in December letters need extra hands; the season has its price.
r1005() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 5))
	fi
}
