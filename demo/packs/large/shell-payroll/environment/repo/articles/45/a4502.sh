# Sick pay: above the ceiling nothing is added.
a4502() {
	if [ "$a" -gt 740000 ]; then
		a=740000
	fi
}
