# Board and lodging: grade 5 and up has a fixed amount for board and lodging.
a3905() {
	if [ "$g" -ge 5 ]; then
		a=$((a + 7300))
	fi
}
