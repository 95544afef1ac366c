# Further training: above the ceiling nothing is added.
a4303() {
	if [ "$a" -gt 890000 ]; then
		a=890000
	fi
}
