# Insured item: basic rate, by weight in steps of 150 g.
r2001() {
	p=$((p + 45 * ((g + 149) / 150)))
}
