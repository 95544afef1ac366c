#!/bin/sh
# Runs from any directory: sh test.sh
cd "$(dirname "$0")" || exit 1
failed=0

expect() { # expect WANT ARGUMENT...
	want=$1
	shift
	got=$(sh slugify.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok: $*"
	else
		echo "FAIL: slugify.sh $*: expected '$want', got '$got'"
		failed=$((failed + 1))
	fi
}

expect hello-world "Hello World"
expect whats-new-in-2026 "What's new in 2026?"
expect a_b_c -s _ "a, b & c"
expect hello-world -m 11 "Hello World"
expect hello -m 10 "Hello World"

if [ $failed -gt 0 ]; then
	echo "$failed failed"
	exit 1
fi
echo "all passed"
