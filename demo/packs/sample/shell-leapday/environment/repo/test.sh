#!/bin/sh
# sh test.sh
status=0
t() {
	expected=$1
	shift
	actual=$("$@" 2>&1)
	if [ "$expected" != "$actual" ]; then
		echo "not ok - $* : expected $expected, got $actual"
		status=1
	else
		echo "ok - $*"
	fi
}

t 1 sh yday.sh 2023-01-01
t 60 sh yday.sh 2023-03-01
t 61 sh yday.sh 2024-03-01
t 365 sh yday.sh 1900-12-31
t 366 sh yday.sh 2000-12-31
t 2 sh between.sh 2024-02-28 2024-03-01
exit $status
