#!/bin/sh
sed -i 's/$(($1 % 100)) -eq 0/$(($1 % 100)) -ne 0/' calendar.sh
