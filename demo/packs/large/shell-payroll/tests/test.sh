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

check() { # check WANT ARGUMENT...
	want=$1
	shift
	all=$((all + 1))
	got=$(under_test sh slip.sh "$@" 2>&1)
	[ $? -lt 124 ] || exit 0
	if [ "$got" = "$want" ]; then
		good=$((good + 1))
	else
		echo "$*: $want wanted, $got came"
	fi
}

check 1850 20 h=10 t=5
check 1100 20 h=10 t=6
check 2150 20 h=12 t=0
check 2150 20 h=12 d=7 t=23
check 1250 20 h=12 d=6
check 2150 20 h=12 d=6 t=1
check 1790 20 h=12 d=7 t=1 g=1
check 10600 20 h=3 y=20 k=2 d=7
check 75350 20 h=200 t=2
check 350 20
check 28550 01 h=180 y=7 g=5 k=3 d=7 t=2
check 11133 02 h=180 y=7 g=5 k=3 d=7 t=2
check 33375 03 h=180 y=7 g=5 k=3 d=7 t=2
check 36620 04 h=180 y=7 g=5 k=3 d=7 t=2
check 39542 05 h=180 y=7 g=5 k=3 d=7 t=2
check 19650 06 h=180 y=7 g=5 k=3 d=7 t=2
check 31038 07 h=180 y=7 g=5 k=3 d=7 t=2
check 17350 08 h=180 y=7 g=5 k=3 d=7 t=2
check 17230 09 h=180 y=7 g=5 k=3 d=7 t=2
check 11360 10 h=180 y=7 g=5 k=3 d=7 t=2
check 21050 11 h=180 y=7 g=5 k=3 d=7 t=2
check 11700 12 h=180 y=7 g=5 k=3 d=7 t=2
check 25024 13 h=180 y=7 g=5 k=3 d=7 t=2
check 24326 14 h=180 y=7 g=5 k=3 d=7 t=2
check 24029 15 h=180 y=7 g=5 k=3 d=7 t=2
check 27030 16 h=180 y=7 g=5 k=3 d=7 t=2
check 41832 17 h=180 y=7 g=5 k=3 d=7 t=2
check 9750 18 h=180 y=7 g=5 k=3 d=7 t=2
check 34250 19 h=180 y=7 g=5 k=3 d=7 t=2
check 'slip.sh: no such form: 99' 99
check 'slip.sh: no such field: x=1' 20 x=1

reward=0
[ $good -eq $all ] && reward=1
echo "{\"reward\": $reward, \"passed\": $good, \"total\": $all}" >$report
