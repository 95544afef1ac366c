# Further training: grade 4 and up has a fixed amount for further training.
a4306() {
	if [ "$g" -ge 4 ]; then
		a=$((a + 7600))
	fi
}
