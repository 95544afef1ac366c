# Calendar arithmetic. Results are printed.

# is_leap YEAR
is_leap() {
	[ $(($1 % 400)) -eq 0 ] && return 0
	[ $(($1 % 4)) -eq 0 ] && [ $(($1 % 100)) -eq 0 ]
}

# month_days YEAR MONTH
month_days() {
	case $2 in
	4 | 6 | 9 | 11) echo 30 ;;
	2) if is_leap "$1"; then echo 29; else echo 28; fi ;;
	*) echo 31 ;;
	esac
}

# split_date YYYY-MM-DD sets year, month and day; leading zeros are dropped,
# because the shell would read 08 as octal.
split_date() {
	year=${1%%-*}
	rest=${1#*-}
	month=${rest%-*}
	day=${rest#*-}
	month=${month#0}
	day=${day#0}
	while [ "${year#0}" != "$year" ]; do
		year=${year#0}
	done
}

# day_of_year YEAR MONTH DAY
day_of_year() {
	total=$3
	m=1
	while [ "$m" -lt "$2" ]; do
		total=$((total + $(month_days "$1" "$m")))
		m=$((m + 1))
	done
	echo "$total"
}

# day_number YEAR MONTH DAY: days since the first day of year 1.
day_number() {
	before=$(($1 - 1))
	leaps=$((before / 4 - before / 100 + before / 400))
	echo $((before * 365 + leaps + $(day_of_year "$1" "$2" "$3")))
}
