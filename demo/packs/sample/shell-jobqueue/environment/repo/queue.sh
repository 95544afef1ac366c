#!/bin/sh
QUEUE_FILE=${QUEUE_FILE:-jobs.txt}
. "$(dirname "$0")/store.sh"

die() {
  echo "queue: $1" >&2
  exit 1
}

store_init
command=$1
[ $# -gt 0 ] && shift

case $command in
  add)
    if [ "$1" = -u ]; then
      [ -n "$2" ] || die "add: which job?"
      store_prepend "$2"
    else
      [ -n "$1" ] || die "add: which job?"
      store_append "$1"
    fi
    ;;
  take)
    [ "$(store_size)" -gt 0 ] || die "take: no job"
    store_first
    store_remove_first
    ;;
  drop)
    store_remove_named "$1"
    ;;
  list)
    number=1
    while read -r job; do
      echo "$number $job"
      number=$((number + 1))
    done < "$QUEUE_FILE"
    ;;
  size)
    store_size
    ;;
  *)
    die "unknown command '$command'"
    ;;
esac
