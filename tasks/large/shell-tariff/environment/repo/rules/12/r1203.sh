# Printed matter: from 50 pieces on, leaflets posted together are 2 per cent cheaper.
r1203() {
	if [ "$n" -ge 50 ]; then
		p=$((p - p * 2 / 100))
	fi
}
