# Travel: from the 12th year of service on there is a bonus.
a3802() {
	if [ "$y" -ge 12 ]; then
		a=$((a + 4500))
	fi
}
