# Vehicle: grade 7 and up has a fixed amount for vehicle.
a4007() {
	if [ "$g" -ge 7 ]; then
		a=$((a + 1300))
	fi
}
