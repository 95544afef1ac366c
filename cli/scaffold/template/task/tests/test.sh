#!/bin/sh
# The reward is the share of the texts that are counted rightly which the program as it stands gets wrong, and 0 if one that it gets right is spoilt.
verdict=/logs/verifier/reward.json
echo '{"reward": 0}' >"$verdict"

# counts TEXT WANT: whether the program, where the code under test is, prints that for the text
counts() {
	got=$(printf "$1" | under-test -t 10 python3 count.py 2>/dev/null)
	[ "$got" = "$2" ] && return
	echo "the words of '$1': want $2, got '$got'"
	return 1
}

mended=0
counts 'two\nlines' 2 && mended=$((mended + 1))
counts 'a  gap' 2 && mended=$((mended + 1))
counts 'tab\tand\tend\n' 3 && mended=$((mended + 1))
counts '' 0 && mended=$((mended + 1))
counts 'one' 1 && counts 'three short words' 3 || mended=0
printf '{"reward": %d.%02d}\n' $((mended / 4)) $((mended * 100 / 4 % 100)) >"$verdict"
