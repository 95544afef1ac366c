# Canteen: grade 8 and up has a fixed amount for canteen.
a4906() {
	if [ "$g" -ge 8 ]; then
		a=$((a + 7000))
	fi
}
