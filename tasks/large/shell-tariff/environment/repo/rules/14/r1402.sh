# Newspaper: each zone beyond the first adds its share of the way.
r1402() {
	p=$((p + 40 * (z - 1)))
}
