# Weekend work: grade 7 and up has a fixed amount for weekend work.
a3605() {
	if [ "$g" -ge 7 ]; then
		a=$((a + 900))
	fi
}
