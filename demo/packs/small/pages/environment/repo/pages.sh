#!/bin/sh
# pages.sh ITEMS SIZE: how many pages the items fill
items=$1
size=$2
full=$((items + size))
pages=$((full / size))
echo "$pages"
