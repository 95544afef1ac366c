#!/bin/sh
sed -i 's/in $@/in "$@"/' guests.sh
