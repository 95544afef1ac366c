#!/bin/sh
report=/logs/verifier/reward.json
echo '{"reward": 0}' > $report

# under_test COMMAND...: runs it where the code under test is, for $limit seconds at most
under_test() {
    if command -v under-test >/dev/null; then under-test -t $limit "$@"; else timeout $limit "$@"; fi
}
limit=60
under_test go build -o /tmp/verify-stock main.go ledger.go command.go || exit 0
limit=5
good=0
all=0

# run COMMANDS EXPECTED, both with ; between lines; errors count as output
run() {
    all=$((all + 1))
    out=$(echo "$1" | tr ';' '\n' | under_test /tmp/verify-stock 2>&1)
    [ $? -lt 124 ] || exit 0
    out=$(echo "$out" | tr '\n' ';')
    if [ "$out" = "$2;" ]; then
        good=$((good + 1))
    else
        echo "$1: expected '$2', got '$out'"
    fi
}

run "add bolt 5;add nut 3;add bolt 2" "bolt 7 0;nut 3 0"
run "add bolt 5;reserve bolt 4;ship bolt 3" "bolt 2 1"
run "add lathe 2;reserve lathe 2" "lathe 2 2"
run "add lathe 2;reserve lathe 3" "line 2: lathe: not enough in stock"
run "add lathe 2;reserve lathe 2;reserve lathe 1" "line 3: lathe: not enough in stock"
run "add lathe 9;reserve lathe 4;reserve lathe 5" "lathe 9 9"
run "add lathe 9;reserve lathe 4;reserve lathe 6" "line 3: lathe: not enough in stock"
run "add lathe 3;reserve lathe 3;release lathe 1;reserve lathe 1" "lathe 3 3"
run "add lathe 3;reserve lathe 3;release lathe 1;reserve lathe 2" "line 4: lathe: not enough in stock"
run "add lathe 3;reserve lathe 3;ship lathe 3;reserve lathe 1" "line 4: lathe: not enough in stock"
run "add lathe 3;reserve lathe 2;ship lathe 1;reserve lathe 1" "lathe 2 2"
run "add a 1;add b 5;reserve b 5;reserve a 1;reserve a 1" "line 5: a: not enough in stock"
run "add bolt 5;ship bolt 1" "line 2: bolt: not that many reserved"
run "add bolt 5;reserve bolt 1;release bolt 2" "line 3: bolt: not that many reserved"
run "reserve bolt 1" "line 1: bolt: no such item"
run "add bolt 0" "line 1: 0 is no number of pieces"
run "add bolt" "line 1: want COMMAND ITEM NUMBER"
run "lend bolt 3" "line 1: bolt: unknown command lend"
run "add  bolt   5;;add bolt 1" "bolt 6 0"
run "" ""

reward=0
if [ $good -eq $all ]; then reward=1; fi
echo "{\"reward\": $reward, \"passed\": $good, \"total\": $all}" > $report
