#!/bin/sh
# sh test.sh
cd "$(dirname "$0")" || exit 1
bad=0

check() { # check WANT ARGUMENT...
	want=$1
	shift
	got=$(sh slip.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok: $*"
	else
		echo "FAIL: $*: $want wanted, $got came"
		bad=1
	fi
}

check 1100 20 h=10
check 1850 20 h=10 t=3
check 1850 20 h=10 d=7
check 1850 20 h=10 t=3 d=7
check 9600 01 h=160
check 15989 15 h=170 y=12
check 9060 04 h=20 g=5

exit $bad
