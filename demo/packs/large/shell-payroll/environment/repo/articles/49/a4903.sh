# Canteen: above the ceiling nothing is added.
a4903() {
	if [ "$a" -gt 530000 ]; then
		a=530000
	fi
}
