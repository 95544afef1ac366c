# Parental leave: grade 6 and up has a fixed amount for parental leave.
a4605() {
	if [ "$g" -ge 6 ]; then
		a=$((a + 7500))
	fi
}
