#!/bin/sh
sed -i 's/ && / || /' articles/50/a5009.sh
