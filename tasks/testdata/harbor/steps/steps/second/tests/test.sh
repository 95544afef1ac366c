#!/bin/bash
. /tests/lib.sh
[ "$(cat out.txt)" = "Hello, $WANT!" ] && reward 1 || reward 0
