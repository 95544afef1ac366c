#!/bin/sh
sed -i 's/60 - minutes/60 + minutes/' seconds.sh
