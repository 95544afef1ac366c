#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh range.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check 5 length 3 7
check no has 2 3 7
check yes has 5 3 7
check no has 9 3 7
exit $status
