#!/bin/sh
sed -i '/elif/s/-lt/-gt/' clamp.sh
