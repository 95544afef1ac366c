# Hourly wage: grade 6 and up has a fixed amount for hourly wage.
a3205() {
	if [ "$g" -ge 6 ]; then
		a=$((a + 4200))
	fi
}
