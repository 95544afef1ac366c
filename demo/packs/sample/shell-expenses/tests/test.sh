#!/bin/sh
# Scores the reports; files are made here so that none can be learnt by heart.
verdict=/logs/verifier/reward.json
echo '{"reward": 0}' >"$verdict"
cases=0
right=0

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
  if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}

try() {
  want=$1
  shift
  cases=$((cases + 1))
  got=$(under_test sh report.sh "$@" 2>/dev/null)
  [ $? -lt 124 ] || exit 0
  if [ "$got" = "$want" ]; then
    right=$((right + 1))
  else
    printf 'report.sh %s: want "%s", got "%s"\n' "$*" "$want" "$got"
  fi
}

# put NAME: a file where the code under test is
put() {
  under_test sh -c 'cat >"$0"' "$data/$1"
}

data=$(under_test mktemp -d) || exit 1
put a.csv <<'END'
date,category,amount,note
2026-01-05,car,12000,tyres
2026-01-06,food,900,bread
2026-01-07,food,12000,party for ten

2026-01-08,fun,50,gum
END
echo 'date,category,amount,note' | put empty.csv
printf 'date,category,amount,note\n2026-02-01,b,7,x\n2026-02-02,a,10,y\n2026-02-03,b,9,z\n' | put b.csv
printf 'date,category,amount,note\n2026-03-01,refund,-500,shoes\n2026-03-02,refund,-20,socks\n' | put c.csv

try "tyres 12000 (2026-01-05)" biggest "$data/a.csv"
try "y 10 (2026-02-02)" biggest "$data/b.csv"
try "socks -20 (2026-03-02)" biggest "$data/c.csv"
try "" biggest "$data/empty.csv"
try "rent 89500 (2026-06-01)" biggest data/june.csv
try 24950 total "$data/a.csv"
try 0 total "$data/empty.csv"
try -520 total "$data/c.csv"
try 4 count "$data/a.csv"
try 2 count "$data/a.csv" food
try 0 count "$data/a.csv" bread
try 0 count "$data/empty.csv"
try "car 12000
food 12900
fun 50" by-category "$data/a.csv"
try "a 10
b 16" by-category "$data/b.csv"
try "" total "$data/missing.csv"
under_test rm -r "$data"

if [ "$right" -eq "$cases" ]; then
  echo "{\"reward\": 1, \"passed\": $right, \"total\": $cases}" >"$verdict"
else
  echo "{\"reward\": 0, \"passed\": $right, \"total\": $cases}" >"$verdict"
fi
