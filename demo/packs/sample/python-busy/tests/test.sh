#!/bin/sh
# The reward is the share of the broken cases that work now, and 0 when a case that worked before does not.
verdict=/logs/verifier/reward.json
echo '{"reward": 0}' >"$verdict"
broken=0
mended=0
spoilt=0

# under_test COMMAND...: runs it where the code under test is, for 20 seconds at most
under_test() {
	if command -v under-test >/dev/null; then under-test -t 20 "$@"; else timeout 20 "$@"; fi
}

# right INPUT WANT ARGUMENT...: whether the program prints that, both with ; between lines
right() {
	input=$1
	want=$2
	shift 2
	got=$(printf '%s\n' "$input" | tr ';' '\n' | under_test python3 busy.py "$@" 2>/dev/null)
	[ $? -lt 124 ] || exit 0
	got=$(printf '%s' "$got" | tr '\n' ';')
	[ "$got" = "$want" ] && return
	echo "$* of '$input': want '$want', got '$got'"
	return 1
}

# mends is a case that a fault breaks, keeps one that it does not.
mends() {
	broken=$((broken + 1))
	if right "$@"; then mended=$((mended + 1)); fi
}
keeps() {
	right "$@" || spoilt=$((spoilt + 1))
}

mends "09:00 10:00;10:00 11:00" "09:00 11:00"
mends "10:00 11:00;09:00 10:00;11:00 11:30" "09:00 11:30"
mends "08:00 12:00;09:00 10:00" "08:00 12:00"
mends "13:00 17:00;14:00 14:30" "17:00 18:00" --free 13:00 18:00
mends "00:00 23:59;00:01 00:02;12:00 13:00" "00:00 23:59"
keeps "09:00 10:00;10:01 11:00" "09:00 10:00;10:01 11:00"
keeps "09:00 10:30;10:00 11:00" "09:00 11:00"
keeps "" ""
keeps "" "09:00 17:00" --free 09:00 17:00
keeps "08:00 09:30;16:00 18:00" "09:30 16:00" --free 09:00 17:00
keeps "20:00 21:00" "09:00 17:00" --free 09:00 17:00

share=$((100 * mended / broken))
[ "$spoilt" -eq 0 ] || share=0
printf '{"reward": %d.%02d, "mended": %d, "broken": %d, "spoilt": %d}\n' $((share / 100)) $((share % 100)) "$mended" "$broken" "$spoilt" >"$verdict"
