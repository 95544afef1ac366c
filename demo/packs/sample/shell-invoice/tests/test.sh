#!/bin/sh
out=/logs/verifier/reward.json
ok=0
all=0
echo '{"reward": 0}' >$out

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
    if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}

# invoice ITEMS DISCOUNT TAX SUBTOTAL DISCOUNT TAX TOTAL
invoice() {
    all=$((all + 1))
    want=$(printf '%-10s %9s\n' Subtotal "$4" Discount "$5" Tax "$6" Total "$7")
    got=$(printf "$1" | under_test sh invoice.sh "$2" "$3" 2>&1)
    [ $? -lt 124 ] || exit 0
    if [ "$want" = "$got" ]; then
        ok=$((ok + 1))
    else
        printf 'items %s, discount %s, tax %s: want\n%s\ngot\n%s\n' "$1" "$2" "$3" "$want" "$got"
    fi
}

invoice '4 2500 chair\n' 10 20 100.00 10.00 18.00 108.00
invoice '2 1250 cup\n1 500 tea pot\n' 0 20 30.00 0.00 6.00 36.00
invoice '1 999 book\n' 50 7 9.99 5.00 0.35 5.34
invoice '3 333 pen\n' 5 19 9.99 0.50 1.80 11.29
invoice '1 100000 bench\n' 100 20 1000.00 1000.00 0.00 0.00
invoice '1 100000 bench\n' 25 0 1000.00 250.00 0.00 750.00
invoice '# nothing\n\n' 10 20 0.00 0.00 0.00 0.00
invoice '# order 7\n10 5 screw\n' 0 0 0.50 0.00 0.00 0.50
invoice '7 1995 lamp\n1 5 bag\n' 12 21 139.70 16.76 25.82 148.76

all=$((all + 1))
echo '1 -5 refund' | under_test sh invoice.sh 0 0 >/dev/null 2>&1 || ok=$((ok + 1))
all=$((all + 1))
under_test sh invoice.sh 5 </dev/null >/dev/null 2>&1
[ $? -eq 2 ] && ok=$((ok + 1))

reward=0
[ $ok -eq $all ] && reward=1
echo "{\"reward\": $reward, \"cases_passed\": $ok, \"cases\": $all}" >$out
