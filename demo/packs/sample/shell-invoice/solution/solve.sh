#!/bin/sh
set -e
sed -i 's/^tax=$(percent "$gross"/tax=$(percent "$net"/' invoice.sh
