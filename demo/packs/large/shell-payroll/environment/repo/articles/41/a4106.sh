# Tools: grade 4 and up has a fixed amount for tools.
a4106() {
	if [ "$g" -ge 4 ]; then
		a=$((a + 3400))
	fi
}
