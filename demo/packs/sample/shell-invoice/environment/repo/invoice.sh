#!/bin/sh
dir=${0%/*}
[ "$dir" = "$0" ] && dir=.
. "$dir/money.sh"
. "$dir/items.sh"

if [ $# -ne 2 ]; then
    echo "usage: invoice.sh DISCOUNT TAX < ITEMS" >&2
    exit 2
fi

gross=$(subtotal) || exit 1
discount=$(percent "$gross" "$1")
net=$((gross - discount))
tax=$(percent "$gross" "$2")
total=$((net + tax))

line Subtotal "$gross"
line Discount "$discount"
line Tax "$tax"
line Total "$total"
