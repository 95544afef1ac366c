# clean TITLE: the words of a title, in lower case, one space between them.
clean() {
	printf '%s\n' "$1" |
		tr '[:upper:]' '[:lower:]' |
		tr -d "'" |
		tr -c 'a-z0-9\n' ' ' |
		sed -e 's/  */ /g' -e 's/^ //' -e 's/ $//'
}
