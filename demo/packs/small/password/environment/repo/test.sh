#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh password.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check good correct1horse
check weak x1
check weak longenough
check weak abc
exit $status
