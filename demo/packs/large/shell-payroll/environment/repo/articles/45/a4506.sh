# Sick pay: grade 4 and up has a fixed amount for sick pay.
a4506() {
	if [ "$g" -ge 4 ]; then
		a=$((a + 2600))
	fi
}
