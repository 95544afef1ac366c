# Vehicle: above the ceiling nothing is added.
a4003() {
	if [ "$a" -gt 830000 ]; then
		a=830000
	fi
}
