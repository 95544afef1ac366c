# Amounts are integers, in cents.

# percent AMOUNT RATE: RATE per cent of AMOUNT, half a cent rounded up.
percent() {
    echo $((($1 * $2 + 50) / 100))
}

# format AMOUNT: 1234 -> 12.34
format() {
    printf '%d.%02d' $(($1 / 100)) $(($1 % 100))
}

# line LABEL AMOUNT: one line of the invoice.
line() {
    printf '%-10s %9s\n' "$1" "$(format "$2")"
}
