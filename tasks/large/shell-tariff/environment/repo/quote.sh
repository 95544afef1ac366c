#!/bin/sh
# sh quote.sh CLASS [FIELD=VALUE]...
here=$(dirname "$0")
plan=$here/plans/$1.txt
if [ $# -lt 1 ] || [ ! -f "$plan" ]; then
	echo "usage: quote.sh CLASS [FIELD=VALUE]..." >&2
	exit 2
fi
shift
g=20 n=1 z=1 v=0 c=10 m=1 p=0
for field; do
	value=${field#?=}
	case $field in
	g=*) g=$value ;;
	n=*) n=$value ;;
	z=*) z=$value ;;
	v=*) v=$value ;;
	c=*) c=$value ;;
	m=*) m=$value ;;
	*)
		echo "quote.sh: no such field: $field" >&2
		exit 2
		;;
	esac
done
while read -r number; do
	. "$here/rules/${number%??}/r$number.sh"
	"r$number"
done <"$plan"
echo "$p"
