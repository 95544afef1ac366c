#!/bin/sh
sed -i 's/$3 - $6/$3 + $6/' filters/67/f6709.awk
