# Union dues: grade 7 and up has a fixed amount for union dues.
a4805() {
	if [ "$g" -ge 7 ]; then
		a=$((a + 7200))
	fi
}
