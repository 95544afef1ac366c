#!/bin/sh
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
  echo "usage: report.sh total|count|by-category|biggest FILE [CATEGORY]" >&2
  exit 2
}

[ $# -ge 2 ] || usage
report=$1
file=$2
category=${3:-}

if [ ! -r "$file" ]; then
  echo "report.sh: cannot read $file" >&2
  exit 1
fi

case $report in
  total) awk -F, -f "$here/awk/total.awk" "$file" ;;
  count) awk -F, -v category="$category" -f "$here/awk/count.awk" "$file" ;;
  by-category) awk -F, -f "$here/awk/category.awk" "$file" | sort ;;
  biggest) awk -F, -f "$here/awk/biggest.awk" "$file" ;;
  *) usage ;;
esac
