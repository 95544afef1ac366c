#!/bin/sh
REWARD=/logs/verifier/reward.json
printf '{"reward": 0}\n' > $REWARD
QUEUE_FILE=/tmp/queue.$$
export QUEUE_FILE
n=0
good=0

# under_test COMMAND...: runs it where the code under test is, for 5 seconds at most
under_test() {
  if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}

stuck=/tmp/stuck.$$
q() {
  [ ! -e $stuck ] || return 124 # once is enough: the reward stays 0
  under_test sh ./queue.sh "$@" 2>/dev/null
  code=$?
  [ $code -lt 124 ] || : >$stuck
  return $code
}

# fresh JOB...: a new queue of these jobs
fresh() {
  under_test rm -f "$QUEUE_FILE" "$QUEUE_FILE.new"
  for job in "$@"; do q add "$job"; done
}

is() {
  n=$((n + 1))
  if [ "$1" = "$2" ]; then good=$((good + 1)); else echo "case $n: want <$1>, got <$2>"; fi
}

fresh
is 0 "$(q size)"
is "" "$(q list)"
q take; is 1 $?

fresh mail print backup
is "1 mail
2 print
3 backup" "$(q list)"
is mail "$(q take)"
is "1 print
2 backup" "$(q list)"
is print "$(q take)"
is 1 "$(q size)"
is backup "$(q take)"
is 0 "$(q size)"

fresh one
is one "$(q take)"
is 0 "$(q size)"
q take; is 1 $?

fresh a b
q add -u "call home"
is 3 "$(q size)"
is "call home" "$(q take)"
is a "$(q take)"
is b "$(q take)"

fresh x y x z
q drop x
is "1 y
2 z" "$(q list)"
q drop nothing
is 2 "$(q size)"

fresh 'a*' '-n' 'two words'
is 'a*' "$(q take)"
is '-n' "$(q take)"
is 'two words' "$(q take)"
q nonsense; is 1 $?

r=0
if [ $good -eq $n ]; then r=1; fi
printf '{"reward": %d, "passed": %d, "total": %d}\n' $r $good $n > $REWARD
