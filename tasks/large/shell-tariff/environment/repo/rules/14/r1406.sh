# Newspaper: in December newspapers need extra hands; the season has its price.
r1406() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 40))
	fi
}
