#!/bin/sh
. "$(dirname "$0")/calendar.sh"

if [ $# -ne 2 ]; then
	echo "usage: between.sh FROM TO" >&2
	exit 2
fi

split_date "$1"
from=$(day_number "$year" "$month" "$day")
split_date "$2"
to=$(day_number "$year" "$month" "$day")
echo $((to - from))
