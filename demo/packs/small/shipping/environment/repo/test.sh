#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh shipping.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check 5 20
check 0 50
check 0 80
check 14 20 express
exit $status
