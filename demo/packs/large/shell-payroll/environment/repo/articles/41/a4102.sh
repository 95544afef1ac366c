# Tools: from the 12th year of service on there is a bonus.
a4102() {
	if [ "$y" -ge 12 ]; then
		a=$((a + 700))
	fi
}
