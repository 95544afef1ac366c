#!/bin/sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/stock" main.go ledger.go command.go || exit 1
fails=0

run() {
    # $1 name, $2 commands (separated by ;), $3 expected output
    out=$(echo "$2" | tr ';' '\n' | "$dir/stock" 2>&1)
    if [ "$out" = "$3" ]; then
        echo "ok: $1"
        return
    fi
    echo "FAIL: $1: expected '$3', got '$out'"
    fails=$((fails + 1))
}

run "shelf" "add bolt 5;add nut 3;add bolt 2" "bolt 7 0
nut 3 0"
run "reserve and ship" "add bolt 5;reserve bolt 4;ship bolt 3" "bolt 2 1"
run "reserve everything" "add lathe 2;reserve lathe 2" "lathe 2 2"
run "reserve twice" "add lathe 2;reserve lathe 2;reserve lathe 1" "line 3: lathe: not enough in stock"
run "ship unreserved" "add bolt 5;ship bolt 1" "line 2: bolt: not that many reserved"

echo "$fails failed"
[ $fails -eq 0 ]
