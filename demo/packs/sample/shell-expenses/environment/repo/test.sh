#!/bin/sh
cd "$(dirname "$0")"
rc=0

try() {
  name=$1
  want=$2
  shift 2
  got=$(sh report.sh "$@" 2>&1)
  if [ "$got" = "$want" ]; then
    printf 'pass  %s\n' "$name"
  else
    printf 'FAIL  %s\n      expected: %s\n      got:      %s\n' "$name" "$want" "$got"
    rc=1
  fi
}

try total 107409 total data/june.csv
try count 5 count data/june.csv
try "count one category" 2 count data/june.csv food
try "by category" "food 6010
home 92499
travel 8900" by-category data/june.csv
try biggest "rent 89500 (2026-06-01)" biggest data/june.csv
exit $rc
