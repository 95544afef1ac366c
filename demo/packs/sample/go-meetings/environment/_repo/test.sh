#!/bin/sh
busy=${TMPDIR:-/tmp}/busy.$$
trap 'rm -f "$busy"' EXIT
go build -o "$busy" clock.go main.go meetings.go || exit 1
failed=0

# example NAME INPUT EXPECTED [OPTION]
example() {
	got=$(printf "$2" | "$busy" $4 2>&1)
	if [ "$got" = "$3" ]; then
		echo "ok   $1"
	else
		echo "FAIL $1"
		echo "  expected: $3"
		echo "  got:      $got"
		failed=1
	fi
}

example "no meeting" '' 'busy 0h00m'
example "two apart" '09:00 10:00\n11:00 11:30\n' '09:00 10:00
11:00 11:30
busy 1h30m'
example "one inside of the other" '09:00 12:00\n10:00 10:30\n' '09:00 12:00
busy 3h00m'
example "overlap" '09:30 11:00\n09:00 10:00\n' '09:00 11:00
busy 2h00m'
example "gap" '09:00 10:00\n11:00 11:30\n' '10:00 11:00
free 1h00m' -free
exit $failed
