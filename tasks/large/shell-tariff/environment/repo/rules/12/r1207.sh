# Printed matter: in December leaflets need extra hands; the season has its price.
r1207() {
	if [ "$m" -eq 12 ]; then
		p=$((p + 5))
	fi
}
