# Printed matter: basic rate, by weight in steps of 450 g.
r1201() {
	p=$((p + 265 * ((g + 449) / 450)))
}
