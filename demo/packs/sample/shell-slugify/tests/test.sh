#!/bin/sh
# Scores the repository in the current directory.
passed=0
total=0

score() {
	printf '{"reward": %d, "passed": %d, "total": %d}\n' "$1" "$passed" "$total" >/logs/verifier/reward.json
}
score 0

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
	if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}

check() { # check WANT ARGUMENT...
	want=$1
	shift
	total=$((total + 1))
	got=$(under_test sh slugify.sh "$@" 2>/dev/null)
	status=$?
	if [ $status -ge 124 ]; then
		echo "ended by $status: $*"
		exit 0
	fi
	if [ "$got" = "$want" ]; then
		passed=$((passed + 1))
	else
		echo "slugify.sh $*: want '$want', got '$got'"
	fi
}

check hello-world "Hello World"
check whats-new-in-2026 "What's new in 2026?"
check a_b_c -s _ "a, b & c"
check hello-world -m 11 "Hello World"
check hello -m 10 "Hello World"
check hello-world -m 12 "Hello World"
check one-two-three -m 13 "One Two Three"
check one-two -m 12 "One Two Three"
check one-two -m 7 "One Two Three"
check one -m 6 "One Two Three"
check abc -m 3 "abcdef ghi"
check a.b -m 3 -s . "A B C"
check a.b.c -m 5 -s . "A B C"
check trim-me "  ...Trim me!  "
check two-arguments Two Arguments
check the-quick-brown-fox-jumps-over-the-lazy "The quick brown fox jumps over the lazy dog"
check 1234567890-1234567890-1234567890-1234567 "1234567890 1234567890 1234567890 1234567"
check 1234567890-1234567890-1234567890 "1234567890 1234567890 1234567890 12345678"

total=$((total + 1))
under_test sh slugify.sh >/dev/null 2>&1
[ $? -eq 2 ] && passed=$((passed + 1))

[ $passed -eq $total ] && score 1 || score 0
