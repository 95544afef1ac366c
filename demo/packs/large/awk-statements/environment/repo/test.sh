#!/bin/sh
# sh test.sh
cd "$(dirname "$0")" || exit 1
bad=0

check() { # check WANT RECORDS KIND, with | between records
	want=$1
	input=$2
	shift 2
	got=$(echo "$input" | tr '|' '\n' | sh book.sh "$@" 2>&1 | tr '\n' '|')
	got=${got%|}
	if [ "$got" = "$want" ]; then
		echo "ok: $*"
	else
		echo "FAIL: $*: $want wanted, $got came"
		bad=1
	fi
}

check '2026-03-01;X;80;95;order 7;15' '2026-03-01;X;80;0;order 7;15' k67
check '2026-03-01;A;80;0;order 7;15|2026-03-02;Y;9;0;3456;0' '2026-03-01;A;80;0;order 7;15|2026-03-02;Y;9;0;mandate 123456;0' k67
check '2026-03-01;A;80;0;rent;0' '2026-03-01;A;80;0;;0' k51
check '2026-03-01;B;0;5;x;0' '2026-03-01;B;5;0;x;0' k60

exit $bad
