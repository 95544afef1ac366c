#!/bin/sh
# range.sh length A B: how many numbers there are from A to B
# range.sh has N A B: "yes" when N is one of them, else "no"
case $1 in
length)
	echo $(($3 - $2))
	;;
has)
	if [ "$2" -ge "$3" ] && [ "$2" -ge "$4" ]; then
		echo yes
	else
		echo no
	fi
	;;
esac
