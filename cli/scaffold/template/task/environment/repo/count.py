"""Prints how many words standard input has."""

import sys

print(len(sys.stdin.read().split(" ")))
