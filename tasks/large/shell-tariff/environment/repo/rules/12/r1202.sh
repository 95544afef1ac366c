# Printed matter: each zone beyond the first adds its share of the way.
r1202() {
	p=$((p + 55 * (z - 1)))
}
