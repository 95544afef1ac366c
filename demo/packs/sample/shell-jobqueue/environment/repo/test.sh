#!/bin/sh
QUEUE_FILE=$(mktemp)
export QUEUE_FILE
trap 'rm -f "$QUEUE_FILE"' EXIT
failures=0

q() { sh ./queue.sh "$@"; }

check() {
  if [ "$2" = "$3" ]; then
    echo "  ok    $1"
  else
    echo "  FAIL  $1"
    echo "        expected: $2"
    echo "        got:      $3"
    failures=$((failures + 1))
  fi
}

check "new queue is empty" 0 "$(q size)"
q add mail; q add print; q add backup
check "three jobs wait" 3 "$(q size)"
check "first out" mail "$(q take)"
check "second out" print "$(q take)"
check "one left" 1 "$(q size)"
q add -u alarm
check "urgent goes first" alarm "$(q take)"
check "then the old one" backup "$(q take)"

echo "$failures failures"
[ "$failures" -eq 0 ]
