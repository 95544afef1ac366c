#!/bin/bash
sed -i "s/world/everybody/" greet.sh
