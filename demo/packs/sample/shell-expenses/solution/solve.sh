#!/bin/sh
sed -i 's/note = $3/note = $4/' awk/biggest.awk
