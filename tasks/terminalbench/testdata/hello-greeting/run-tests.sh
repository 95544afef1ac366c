#!/bin/bash

if [ "$PWD" = "/" ]; then
    echo "there is no working directory"
    exit 1
fi

python3 -m pytest -p no:cacheprovider "$TEST_DIR/test_outputs.py" -rA
