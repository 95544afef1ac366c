#!/bin/sh
# sh test.sh
cd "$(dirname "$0")" || exit 1
bad=0

check() { # check WANT ARGUMENT...
	want=$1
	shift
	got=$(sh quote.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok: $*"
	else
		echo "FAIL: $*: $want wanted, $got came"
		bad=1
	fi
}

check 170 p g=400
check 200 p g=1000
check 450 p g=1001 z=3
check 365 a g=20
check 760 h g=4000 z=2 c=90
check 565 k g=300 v=950
check 340 p g=999 n=21

exit $bad
