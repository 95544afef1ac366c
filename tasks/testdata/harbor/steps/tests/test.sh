#!/bin/bash
. /tests/lib.sh
[ "$(sh greet.sh)" = "Hello, $WANT!" ] && reward 1 || reward 0
