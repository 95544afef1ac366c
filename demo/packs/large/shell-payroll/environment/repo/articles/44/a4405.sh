# Children: grade 4 and up has a fixed amount for children.
a4405() {
	if [ "$g" -ge 4 ]; then
		a=$((a + 8200))
	fi
}
