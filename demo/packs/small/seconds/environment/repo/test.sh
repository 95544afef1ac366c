#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh seconds.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check 7200 2:00:00
check 4200 1:10:00
check 3723 1:02:03
exit $status
