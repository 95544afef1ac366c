#!/bin/sh
sed -i 's/-ge 1000/-gt 1000/' rules/25/r2510.sh
