# Medicine: never less than the least charge, whatever it weighs.
r2703() {
	if [ "$p" -lt 135 ]; then
		p=135
	fi
}
