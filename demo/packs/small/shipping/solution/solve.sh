#!/bin/sh
sed -i 's/-gt 50/-ge 50/; s/cost - 9/cost + 9/' shipping.sh
