#!/bin/sh
# Scores the repository in the current directory.
report=/logs/verifier/reward.json
echo '{"reward": 0}' >$report
good=0
all=0

check() { # check WANT ARGUMENT...
	want=$1
	shift
	all=$((all + 1))
	got=$(timeout 5 sh quote.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		good=$((good + 1))
	else
		echo "$*: $want wanted, $got came"
	fi
}

check 170 p
check 200 p g=999
check 200 p g=1000
check 450 p g=1001
check 275 p g=1000 z=5 m=12
check 1095 p g=2000 z=8
check 490 p g=1000 n=24 c=70
check 650 p g=1000 v=900
check 190 p g=20 z=4 m=7
check 1495 a g=750 z=3 n=30 v=600 c=60 m=12
check 4870 b g=750 z=3 n=30 v=600 c=60 m=12
check 645 c g=750 z=3 n=30 v=600 c=60 m=12
check 720 d g=750 z=3 n=30 v=600 c=60 m=12
check 1320 e g=750 z=3 n=30 v=600 c=60 m=12
check 1620 f g=750 z=3 n=30 v=600 c=60 m=12
check 1025 g g=750 z=3 n=30 v=600 c=60 m=12
check 490 h g=750 z=3 n=30 v=600 c=60 m=12
check 2890 i g=750 z=3 n=30 v=600 c=60 m=12
check 550 j g=750 z=3 n=30 v=600 c=60 m=12
check 860 k g=750 z=3 n=30 v=600 c=60 m=12
check 1695 l g=750 z=3 n=30 v=600 c=60 m=12
check 805 m g=750 z=3 n=30 v=600 c=60 m=12
check 690 n g=750 z=3 n=30 v=600 c=60 m=12
check 1885 o g=750 z=3 n=30 v=600 c=60 m=12
check 1630 q g=750 z=3 n=30 v=600 c=60 m=12
check 2680 r g=750 z=3 n=30 v=600 c=60 m=12
check 725 s g=750 z=3 n=30 v=600 c=60 m=12
check 900 t g=750 z=3 n=30 v=600 c=60 m=12
check 'usage: quote.sh CLASS [FIELD=VALUE]...' x
check 'quote.sh: no such field: q=1' p q=1

reward=0
[ $good -eq $all ] && reward=1
echo "{\"reward\": $reward, \"passed\": $good, \"total\": $all}" >$report
