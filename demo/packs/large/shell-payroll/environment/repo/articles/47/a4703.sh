# Pension fund: trainees in grade 1 have four fifths.
a4703() {
	if [ "$g" -eq 1 ]; then
		a=$((a * 4 / 5))
	fi
}
