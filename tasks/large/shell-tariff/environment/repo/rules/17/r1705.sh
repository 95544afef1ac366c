# Parcel: in December parcels need extra hands; the season has its price.
r1705() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 50))
	fi
}
