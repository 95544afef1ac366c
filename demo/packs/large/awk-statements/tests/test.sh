#!/bin/sh
# Scores the repository in the current directory.
report=/logs/verifier/reward.json
echo '{"reward": 0}' >$report

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
	if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}
good=0
all=0

check() { # check WANT RECORDS KIND, with | between records
	want=$1
	input=$2
	shift 2
	all=$((all + 1))
	got=$(echo "$input" | tr '|' '\n' | under_test sh book.sh "$@" 2>&1)
	[ $? -lt 124 ] || exit 0
	got=$(printf '%s' "$got" | tr '\n' '|')
	if [ "$got" = "$want" ]; then
		good=$((good + 1))
	else
		echo "$*: $want wanted, $got came"
	fi
}

check '2026-03-01;X;80;95;order 7;15' '2026-03-01;X;80;0;order 7;15' k67
check '2026-03-01;X;80;80;direct debits;0|2026-03-01;X;0;3;a;3' '2026-03-01;X;80;0;;0|2026-03-01;X;0;7;a;3' k67
check '2026-03-01;Y;80;2;9876;15' '2026-03-01;Y;80;2;mandate 9876;15' k67
check '2026-03-01;A;80;2;a;15' '2026-03-01;A;80;2;a;15' k67
check '2026-03-01;X;1000;1250;a;250|2026-03-01;B;4;4;direct debits;4' '2026-03-01;X;1000;1;a;250|2026-03-01;B;4;4;;4' k67
check '2026-03-01;B;0;5;a;1|2026-03-02;;7500;3;rent;2|2026-03-02;A;0;20;z;2' '26-03-01;B;5;0;a [x];1|2026-03-02;;7500;3;;2|2026-03-02;AB;20;3;z;2' k51
check '26-03-01;B;0;19;a;1|2026-03-02;G;7500;3;telephone (approve);2|2026-03-02;A;0;20;z;2' '26-03-01;B;5;0;a [x];1|2026-03-02;;7500;3;;2|2026-03-02;AB;20;3;z;2' k55
check '2026-03-01;B;5;0;a;1|2026-03-02;W;7500;3;customs (approve);2|2026-03-02;AB;20;3;z;2' '26-03-01;B;5;0;a [x];1|2026-03-02;;7500;3;;2|2026-03-02;AB;20;3;z;2' k58
check '2026-03-01;B;0;5;a;1|2026-03-02;;7500;3;leasing (approve);2|2026-03-02;A;0;20;z;2' '26-03-01;B;5;0;a [x];1|2026-03-02;;7500;3;;2|2026-03-02;AB;20;3;z;2' k62
check '26-03-01;B;0;5;a [x];1|2026-03-02;V;7500;3;securities (approve);2|2026-03-02;A;20;3;z;2' '26-03-01;B;5;0;a [x];1|2026-03-02;;7500;3;;2|2026-03-02;AB;20;3;z;2' k64
check '2026-03-01;B;0;5;a;1|2026-03-02;K;7500;3;petty cash (approve);2|2026-03-02;AB;0;20;z;2' '26-03-01;B;5;0;a [x];1|2026-03-02;;7500;3;;2|2026-03-02;AB;20;3;z;2' k70
check 'book.sh: no such kind: k10' 'a' k10

reward=0
[ $good -eq $all ] && reward=1
echo "{\"reward\": $reward, \"passed\": $good, \"total\": $all}" >$report
