#!/bin/sh
top=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

printf 'hello world\n' > 'my notes.txt'
printf 'abc' > a.txt
printf 'x' > b.txt
errors=0

# compare NAME EXPECTED ARGUMENT...
compare() {
    name=$1
    expected=$2
    shift 2
    got=$(sh "$top/pack.sh" "$@" 2>&1)
    if [ "$got" = "$expected" ]; then
        echo "[ok] $name"
    else
        echo "[failed] $name"
        echo "expected:"
        echo "$expected"
        echo "got:"
        echo "$got"
        errors=$((errors + 1))
    fi
}

compare "two files" "a.txt 3
b.txt 1
total 2 files, 4 bytes" a.txt b.txt
compare "title" "# my trip
a.txt 3
total 1 file, 3 bytes" -n "my trip" a.txt
compare "name with a space" "# trip
my notes.txt 12
total 1 file, 12 bytes" -n trip "my notes.txt"
compare "missing file" "pack.sh: c.txt: no such file
total 1 file, 3 bytes" -q a.txt c.txt

[ "$errors" -eq 0 ] || echo "$errors failed"
[ "$errors" -eq 0 ]
