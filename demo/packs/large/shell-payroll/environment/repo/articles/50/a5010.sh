# Standby duty: the telephone is paid for as well.
a5010() {
	a=$((a + 350))
}
