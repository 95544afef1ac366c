# Parental leave: from the 7th year of service on there is a bonus.
a4602() {
	if [ "$y" -ge 7 ]; then
		a=$((a + 3900))
	fi
}
