#!/bin/sh
# shipping.sh TOTAL [express]: what shipping costs
total=$1
cost=5
if [ "$total" -gt 50 ]; then
	cost=0
fi
if [ "$2" = express ]; then
	cost=$((cost - 9))
fi
echo "$cost"
