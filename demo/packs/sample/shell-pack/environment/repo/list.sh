# bytes FILE
bytes() {
    echo $(($(wc -c < "$1")))
}

# plural COUNT WORD
plural() {
    if [ "$1" -eq 1 ]; then
        echo "$1 $2"
    else
        echo "$1 $2s"
    fi
}

# print_list FILE...: status 1 when a file was missing
print_list() {
    count=0
    sum=0
    missing=0
    for file in "$@"; do
        if [ ! -f "$file" ]; then
            complain "$file: no such file"
            missing=1
            continue
        fi
        size=$(bytes "$file")
        [ "$quiet" = yes ] || echo "$file $size"
        count=$((count + 1))
        sum=$((sum + size))
    done
    echo "total $(plural $count file), $(plural $sum byte)"
    return $missing
}
