#!/bin/sh
top=$(pwd)
goal=/logs/verifier/reward.json
done_=0
want_=0

write_reward() {
    printf '{"reward": %s, "passed": %s, "total": %s}\n' "$1" "$done_" "$want_" > $goal
}
write_reward 0

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
    if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}

# put NAME: a file where the code under test is
put() {
    under_test sh -c 'cat > "$0"' "$work/$1"
}

work=$(under_test mktemp -d) || exit 1
printf 'hello world\n' | put 'my notes.txt'
printf '12345' | put '  two  spaces  '
printf 'abc' | put a.txt
printf 'x' | put '*'
put empty </dev/null

# compare STATUS EXPECTED ARGUMENT...
compare() {
    status=$1
    expected=$2
    shift 2
    want_=$((want_ + 1))
    got=$(under_test sh -c 'cd "$0" && exec sh "$@"' "$work" "$top/pack.sh" "$@" 2>/dev/null)
    code=$?
    [ $code -lt 124 ] || exit 0
    if [ "$code $got" = "$status $expected" ]; then
        done_=$((done_ + 1))
    else
        echo "pack.sh $*: expected status $status and:"
        echo "$expected"
        echo "got status $code and:"
        echo "$got"
    fi
}

compare 0 "a.txt 3
empty 0
total 2 files, 3 bytes" a.txt empty
compare 0 "# trip
my notes.txt 12
total 1 file, 12 bytes" -n trip "my notes.txt"
compare 0 "  two  spaces   5
my notes.txt 12
total 2 files, 17 bytes" "  two  spaces  " "my notes.txt"
compare 0 "* 1
total 1 file, 1 byte" "*"
compare 0 "total 2 files, 15 bytes" -q "my notes.txt" a.txt
compare 0 "total 1 file, 0 bytes" -q -n "two words" empty
compare 0 "# two words
empty 0
total 1 file, 0 bytes" -n "two words" -- empty
compare 1 "total 0 files, 0 bytes" "my missing file"
compare 1 "a.txt 3
total 1 file, 3 bytes" nothing a.txt
compare 2 ""
compare 2 "" -n
compare 2 "" -z a.txt
under_test rm -rf "$work"

if [ $done_ -eq $want_ ]; then write_reward 1; else write_reward 0; fi
