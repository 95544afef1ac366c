#!/bin/sh
sed -i '/echo /s/- $2/- $2 + 1/; s/"$2" -ge "$4"/"$2" -le "$4"/' range.sh
