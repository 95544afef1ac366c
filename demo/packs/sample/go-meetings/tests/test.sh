#!/bin/sh
out=/logs/verifier/reward.json
passed=0
total=0
echo '{"reward": 0}' >$out

# under_test COMMAND...: runs it where the code under test is, for $limit seconds at most
under_test() {
	if command -v under-test >/dev/null; then under-test -t $limit "$@"; else timeout $limit "$@"; fi
}

busy=/tmp/verify-busy
limit=60
under_test go build -o $busy clock.go main.go meetings.go || exit 0
limit=5

# example INPUT EXPECTED [OPTION]
example() {
	total=$((total + 1))
	got=$(printf "$1" | under_test $busy $3 2>/dev/null)
	[ $? -lt 124 ] || exit 0
	if [ "$got" = "$2" ]; then
		passed=$((passed + 1))
	else
		printf 'input:\n%s\nexpected:\n%s\ngot:\n%s\n' "$1" "$2" "$got"
	fi
}

example '' 'busy 0h00m'
example '' 'free 0h00m' -free
example '08:05 09:10\n' '08:05 09:10
busy 1h05m'
example '09:00 10:00\n11:00 11:30\n' '09:00 10:00
11:00 11:30
busy 1h30m'
example '09:00 12:00\n10:00 10:30\n' '09:00 12:00
busy 3h00m'
example '10:00 10:30\n09:00 12:00\n11:00 11:45\n' '09:00 12:00
busy 3h00m'
example '09:30 11:00\n09:00 10:00\n' '09:00 11:00
busy 2h00m'
example '09:00 10:00\n10:00 11:00\n' '09:00 11:00
busy 2h00m'
example '09:00 10:00\n10:01 11:00\n' '09:00 10:00
10:01 11:00
busy 1h59m'
example '09:00 10:00\n09:00 10:00\n' '09:00 10:00
busy 1h00m'
example '09:00 10:00\n09:00 09:20\n09:50 10:10\n' '09:00 10:10
busy 1h10m'
example '00:00 24:00\n12:00 13:00\n' '00:00 24:00
busy 24h00m'
example '14:00 15:00\n\n09:00 12:00\n10:00 11:00\n' '12:00 14:00
free 2h00m' -free
example '09:00 12:00\n10:00 10:30\n11:00 13:00\n13:30 14:00\n' '13:00 13:30
free 0h30m' -free
example '12:00 11:00\n' ''
example '12:00 12:60\n' ''
example 'lunch\n' ''

reward=0
[ $passed -eq $total ] && reward=1
printf '{"reward": %d, "passed": %d, "total": %d}\n' $reward $passed $total >$out
