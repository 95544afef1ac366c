# Tools: above the ceiling nothing is added.
a4103() {
	if [ "$a" -gt 760000 ]; then
		a=760000
	fi
}
