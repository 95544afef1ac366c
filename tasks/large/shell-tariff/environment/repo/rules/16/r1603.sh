# Small parcel: from 5 pieces on, small parcels posted together are 2 per cent cheaper.
r1603() {
	if [ "$n" -ge 5 ]; then
		p=$((p - p * 2 / 100))
	fi
}
