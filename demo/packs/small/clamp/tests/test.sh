#!/bin/sh
# The reward is the share of the broken cases that work now, and 0 when a case that worked before does not.
verdict=/logs/verifier/reward.json
echo '{"reward": 0}' >"$verdict"
broken=0
mended=0
spoilt=0

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
	if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}

# right WANT ARGUMENT...: whether the program prints that
right() {
	want=$1
	shift
	got=$(under_test sh clamp.sh "$@" 2>/dev/null)
	[ $? -lt 124 ] || exit 0
	[ "$got" = "$want" ] && return
	echo "clamp.sh $*: want '$want', got '$got'"
	return 1
}

# mends is a case that the fault breaks, keeps one that it does not.
mends() {
	broken=$((broken + 1))
	if right "$@"; then mended=$((mended + 1)); fi
}
keeps() {
	right "$@" || spoilt=$((spoilt + 1))
}

mends 7 7 1 9
mends 2 2 1 9
mends -3 -3 -5 5
mends 9 12 1 9
mends 5 800 -5 5
keeps 1 0 1 9
keeps -5 -70 -5 5
keeps 9 9 1 9

share=$((100 * mended / broken))
[ "$spoilt" -eq 0 ] || share=0
printf '{"reward": %d.%02d, "mended": %d, "broken": %d, "spoilt": %d}\n' $((share / 100)) $((share % 100)) "$mended" "$broken" "$spoilt" >"$verdict"
