# Standby duty: grade 7 and up has a fixed amount for standby duty.
a5005() {
	if [ "$g" -ge 7 ]; then
		a=$((a + 5900))
	fi
}
