#!/bin/sh
here=$(dirname "$0")
. "$here/options.sh"
. "$here/list.sh"

complain() {
    echo "pack.sh: $*" >&2
}

read_options "$@" || exit 2
shift $used

if [ $# -eq 0 ]; then
    complain "no files"
    exit 2
fi

if [ -n "$title" ] && [ $quiet = no ]; then
    echo "# $title"
fi
print_list $@
