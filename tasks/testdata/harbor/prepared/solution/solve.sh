#!/bin/bash
set -euo pipefail
sed -i "s/wold/world/" greet.sh
