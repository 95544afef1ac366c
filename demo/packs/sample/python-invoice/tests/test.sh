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
	got=$(printf '%s\n' "$input" | tr ';' '\n' | under_test python3 -m invoice "$@" 2>/dev/null)
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

mends "1 19.99 lamp" "lamp 19.99;total 19.99"
mends "3 0.29 nut;1 1.1 bolt" "nut 0.87;bolt 1.10;total 1.97"
mends "2 4.35 tea" "tea 8.70;total 8.70"
mends "1 -1.50 voucher" "voucher -1.50;total -1.50"
mends "1 10 cable;1 -0.25 voucher" "cable 10.00;voucher -0.25;total 9.75"
mends "2 -0.05 rounding" "rounding -0.10;total -0.10"
keeps "2 3.5 a pot of glue" "a pot of glue 7.00;total 7.00"
keeps "# nothing yet;;" "total 0.00"
keeps "1 -2 return;1 5 cup" "return -2.00;cup 5.00;total 3.00"
keeps "7 12.25 box" "box 85.75;total 85.75"

share=$((100 * mended / broken))
[ "$spoilt" -eq 0 ] || share=0
printf '{"reward": %d.%02d, "mended": %d, "broken": %d, "spoilt": %d}\n' $((share / 100)) $((share % 100)) "$mended" "$broken" "$spoilt" >"$verdict"
