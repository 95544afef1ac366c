#!/bin/sh
sed -i 's/"${#longer}" -ge "$limit"/"${#longer}" -gt "$limit"/' lib/shorten.sh
