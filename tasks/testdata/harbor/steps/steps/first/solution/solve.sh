#!/bin/bash
sed -i "s/wold/world/" greet.sh
