#!/bin/sh
# guests.sh NAME...: how many there are, and the longest name
count=0
longest=
for name in $@; do
	count=$((count + 1))
	if [ "${#name}" -gt "${#longest}" ]; then
		longest=$name
	fi
done
echo "$count guests, longest: $longest"
