#!/bin/sh
# sh book.sh KIND <records
here=$(dirname "$0")
if [ ! -f "$here/lists/$1.txt" ]; then
	echo "book.sh: no such kind: $1" >&2
	exit 2
fi
work=$(mktemp)
trap 'rm -f "$work" "$work.next"' EXIT
cat >"$work"
for number in $(cat "$here/lists/$1.txt"); do
	awk -F ';' -v OFS=';' -f "$here/filters/${number%??}/f$number.awk" "$work" >"$work.next" || exit 1
	mv "$work.next" "$work"
done
cat "$work"
