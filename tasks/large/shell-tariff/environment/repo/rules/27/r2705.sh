# Medicine: in December medicines need extra hands; the season has its price.
r2705() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 60))
	fi
}
