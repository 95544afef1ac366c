#!/bin/bash

if grep -qx "Hello, world!" greeting.txt; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
