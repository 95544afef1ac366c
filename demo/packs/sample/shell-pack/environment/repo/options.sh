# Reads the options into $title and $quiet, and counts them in $used.

title=
quiet=no
used=0

read_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            -n)
                if [ $# -lt 2 ]; then
                    complain "-n: title is missing"
                    return 2
                fi
                title=$2
                used=$((used + 2))
                shift 2
                ;;
            -q)
                quiet=yes
                used=$((used + 1))
                shift
                ;;
            --)
                used=$((used + 1))
                return 0
                ;;
            -*)
                complain "$1: unknown option"
                return 2
                ;;
            *)
                return 0
                ;;
        esac
    done
}
