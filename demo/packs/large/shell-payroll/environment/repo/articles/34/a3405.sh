# Overtime: grade 4 and up has a fixed amount for overtime.
a3405() {
	if [ "$g" -ge 4 ]; then
		a=$((a + 6400))
	fi
}
