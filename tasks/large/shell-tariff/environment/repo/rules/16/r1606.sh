# Small parcel: in December small parcels need extra hands; the season has its price.
r1606() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 55))
	fi
}
