# Further training: from the 13th year of service on there is a bonus.
a4302() {
	if [ "$y" -ge 13 ]; then
		a=$((a + 2000))
	fi
}
