#!/bin/sh
sed -i 's/||/\&\&/' password.sh
