#!/bin/sh
# extension.sh NAME: the ending of a file name, nothing when it has none
name=$1
ending=${name#*.}
if [ "$ending" = "$name" ]; then
	ending=
fi
echo "$ending"
