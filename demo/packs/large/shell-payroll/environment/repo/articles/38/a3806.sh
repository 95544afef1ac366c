# Travel: grade 5 and up has a fixed amount for travel.
a3806() {
	if [ "$g" -ge 5 ]; then
		a=$((a + 4300))
	fi
}
