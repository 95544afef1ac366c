#!/bin/sh
# sh test.sh
status=0
check() {
	want=$1
	shift
	got=$(sh extension.sh "$@" 2>&1)
	if [ "$got" = "$want" ]; then
		echo "ok - $*"
	else
		echo "not ok - $*: want '$want', got '$got'"
		status=1
	fi
}

check txt notes.txt
check "" Makefile
check gz archive.tar.gz
exit $status
