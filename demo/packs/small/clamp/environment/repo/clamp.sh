#!/bin/sh
# clamp.sh N LOW HIGH: N, kept between two bounds
n=$1
low=$2
high=$3
if [ "$n" -lt "$low" ]; then
	n=$low
elif [ "$n" -lt "$high" ]; then
	n=$high
fi
echo "$n"
