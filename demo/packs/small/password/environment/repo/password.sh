#!/bin/sh
# password.sh TEXT: "good" for eight characters or more with a digit, else "weak"
text=$1
digit=no
case $text in
*[0-9]*) digit=yes ;;
esac
if [ "${#text}" -ge 8 ] || [ "$digit" = yes ]; then
	echo good
else
	echo weak
fi
