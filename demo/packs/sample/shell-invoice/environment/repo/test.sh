#!/bin/sh
# Usage: sh test.sh
. ./money.sh
bad=0

same() {
    if [ "$2" = "$3" ]; then
        echo "PASS $1"
    else
        echo "FAIL $1: expected $2, got $3"
        bad=1
    fi
}

# amount LABEL < INVOICE
amount() {
    awk -v label="$1" '$1 == label { print $2 }'
}

same "percent rounds up" 13 "$(percent 125 10)"
same "format" 12.05 "$(format 1205)"

plain=$(printf '2 1250 cup\n1 500 tea pot\n' | sh invoice.sh 0 20)
same "plain subtotal" 30.00 "$(echo "$plain" | amount Subtotal)"
same "plain tax" 6.00 "$(echo "$plain" | amount Tax)"
same "plain total" 36.00 "$(echo "$plain" | amount Total)"

cut=$(printf '4 2500 chair\n' | sh invoice.sh 10 20)
same "discount" 10.00 "$(echo "$cut" | amount Discount)"
same "tax after discount" 18.00 "$(echo "$cut" | amount Tax)"
same "total after discount" 108.00 "$(echo "$cut" | amount Total)"

exit $bad
