#!/bin/sh
sed -i 's/name#\*/name##*/' extension.sh
