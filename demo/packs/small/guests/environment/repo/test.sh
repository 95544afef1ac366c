#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh guests.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check "2 guests, longest: Alan" Ada Alan
check "3 guests, longest: Grace Hopper" Ada "Grace Hopper" Alan
exit $status
