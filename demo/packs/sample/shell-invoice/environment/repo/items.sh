# subtotal: adds the items on standard input, "QUANTITY CENTS NAME" each.
subtotal() {
    sum=0
    while read -r quantity cents name; do
        case $quantity in
            '' | '#'*) continue ;;
        esac
        if [ "$cents" -lt 0 ]; then
            echo "invoice: $name: negative price" >&2
            return 1
        fi
        sum=$((sum + quantity * cents))
    done
    echo "$sum"
}
