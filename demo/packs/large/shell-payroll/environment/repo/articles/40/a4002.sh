# Vehicle: from the 14th year of service on there is a bonus.
a4002() {
	if [ "$y" -ge 14 ]; then
		a=$((a + 2700))
	fi
}
