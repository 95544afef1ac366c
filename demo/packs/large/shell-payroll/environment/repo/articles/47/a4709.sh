# Pension fund: who enters after the fiftieth birthday pays one per cent more.
a4709() {
	if [ "$y" -gt 30 ]; then
		a=$((a - a / 100))
	fi
}
