# Bee colony: swarms and queens go in ventilated boxes. Up to a full kilogram no surcharge is due.
r2510() {
	if [ "$g" -ge 1000 ]; then
		p=$((p + 250))
	fi
}
