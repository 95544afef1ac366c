# Insured item: in December insured items need extra hands; the season has its price.
r2007() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 20))
	fi
}
