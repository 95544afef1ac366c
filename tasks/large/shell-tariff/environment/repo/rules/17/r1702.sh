# Parcel: never less than the least charge, whatever it weighs.
r1702() {
	if [ "$p" -lt 140 ]; then
		p=140
	fi
}
