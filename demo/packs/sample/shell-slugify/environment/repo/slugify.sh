#!/bin/sh
# slugify.sh [-m LENGTH] [-s SEPARATOR] TITLE...
here=$(dirname "$0")
. "$here/lib/clean.sh"
. "$here/lib/shorten.sh"

limit=40
separator=-

while getopts m:s: option; do
	case $option in
	m) limit=$OPTARG ;;
	s) separator=$OPTARG ;;
	*) echo "usage: slugify.sh [-m LENGTH] [-s SEPARATOR] TITLE..." >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))

if [ $# -eq 0 ]; then
	echo "slugify.sh: no title" >&2
	exit 2
fi

shorten "$limit" "$separator" $(clean "$*")
