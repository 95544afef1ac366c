#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh clamp.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check 7 7 1 9
check 1 0 1 9
check 9 12 1 9
exit $status
