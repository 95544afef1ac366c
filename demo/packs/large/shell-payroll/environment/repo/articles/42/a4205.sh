# Clothing: grade 6 and up has a fixed amount for clothing.
a4205() {
	if [ "$g" -ge 6 ]; then
		a=$((a + 900))
	fi
}
