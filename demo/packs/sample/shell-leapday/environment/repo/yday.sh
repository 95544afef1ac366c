#!/bin/sh
. "$(dirname "$0")/calendar.sh"

case $1 in
[0-9]*-[0-9][0-9]-[0-9][0-9]) ;;
*)
	echo "usage: yday.sh YYYY-MM-DD" >&2
	exit 2
	;;
esac

split_date "$1"
if [ "$month" -lt 1 ] || [ "$month" -gt 12 ] || [ "$day" -lt 1 ] ||
	[ "$day" -gt "$(month_days "$year" "$month")" ]; then
	echo "yday.sh: no such date: $1" >&2
	exit 1
fi
day_of_year "$year" "$month" "$day"
