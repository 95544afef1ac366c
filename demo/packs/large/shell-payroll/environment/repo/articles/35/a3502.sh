# Night work: from the 14th year of service on there is a bonus.
a3502() {
	if [ "$y" -ge 14 ]; then
		a=$((a + 1000))
	fi
}
