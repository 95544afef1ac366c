# Bulky goods: in December bulky goods need extra hands; the season has its price.
r1807() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 80))
	fi
}
