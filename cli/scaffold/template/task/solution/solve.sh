#!/bin/sh
# Lint runs this in the workspace: the tests must then give 1.
sed -i 's/split(" ")/split()/' count.py
