#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh pages.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check 1 3 10
check 2 20 10
check 3 21 10
exit $status
