# Pension fund: grade 6 and up has a fixed amount for pension fund.
a4706() {
	if [ "$g" -ge 6 ]; then
		a=$((a + 6900))
	fi
}
