# shorten LIMIT SEPARATOR WORD...: joins the words while they fit into LIMIT
# characters. A first word that is too long by itself is cut.
shorten() {
	limit=$1
	separator=$2
	shift 2

	slug=
	for word in "$@"; do
		if [ -z "$slug" ]; then
			slug=$(printf '%s' "$word" | cut -c "1-$limit")
			continue
		fi
		longer=$slug$separator$word
		if [ "${#longer}" -ge "$limit" ]; then
			break
		fi
		slug=$longer
	done
	printf '%s\n' "$slug"
}
