#!/bin/sh
# hidden checks; reward.json holds 0 until everything has passed
result() {
	echo "{\"reward\": $1, \"passed\": $pass, \"failed\": $fail}" >/logs/verifier/reward.json
}
pass=0
fail=0
result 0

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
	if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}

t() {
	expected=$1
	shift
	actual=$(under_test sh "$@" 2>/dev/null)
	[ $? -lt 124 ] || exit 0
	if [ "$expected" = "$actual" ]; then
		pass=$((pass + 1))
	else
		fail=$((fail + 1))
		echo "$*: expected '$expected', got '$actual'"
	fi
}

t 1 yday.sh 2023-01-01
t 60 yday.sh 2023-03-01
t 60 yday.sh 2024-02-29
t 61 yday.sh 2024-03-01
t 365 yday.sh 2023-12-31
t 366 yday.sh 2024-12-31
t 365 yday.sh 1900-12-31
t 365 yday.sh 2100-12-31
t 366 yday.sh 2000-12-31
t 366 yday.sh 1600-12-31
t 221 yday.sh 2023-08-09
t 282 yday.sh 2024-10-08
t "" yday.sh 2023-02-29
t "" yday.sh 1900-02-29
t "" yday.sh 2023-13-01
t "" yday.sh tomorrow
t 2 between.sh 2024-02-28 2024-03-01
t 1 between.sh 2023-02-28 2023-03-01
t 366 between.sh 2024-01-01 2025-01-01
t -366 between.sh 2025-01-01 2024-01-01
t 36524 between.sh 1900-01-01 2000-01-01
t 0 between.sh 2026-08-08 2026-08-08

if [ "$fail" -eq 0 ]; then
	result 1
else
	result 0
fi
