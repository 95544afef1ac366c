# Parental leave: a child that falls ill keeps one parent at home, for ten days of each year.
a4609() {
	if [ "$k" -ge 1 ]; then
		a=$((a + 1200))
	fi
}
