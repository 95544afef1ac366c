"""Merges the appointments of a day that standard input holds, one "HH:MM HH:MM" a line.

busy.py                      prints when one is busy
busy.py --free HH:MM HH:MM   prints what is left between two times
"""

import sys


def minutes(text):
    """Minutes since midnight of "HH:MM"."""
    hours, rest = text.split(":")
    return int(hours) * 60 + int(rest)


def clock(count):
    """ "HH:MM" of minutes since midnight."""
    return f"{count // 60:02d}:{count % 60:02d}"


def merge(times):
    """The times, sorted, with those that meet made one."""
    merged = []
    for begin, end in sorted(times):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def free(times, begin, end):
    """What the times leave between begin and end."""
    left = []
    for busy_from, busy_to in merge(times):
        if busy_from > begin:
            left.append((begin, min(busy_from, end)))
        begin = max(begin, busy_to)
        if begin >= end:
            break
    if begin < end:
        left.append((begin, end))
    return left


def main(arguments):
    times = []
    for line in sys.stdin:
        if line.strip():
            begin, end = line.split()
            times.append((minutes(begin), minutes(end)))
    if arguments[:1] == ["--free"]:
        shown = free(times, minutes(arguments[1]), minutes(arguments[2]))
    else:
        shown = merge(times)
    for begin, end in shown:
        print(clock(begin), clock(end))


if __name__ == "__main__":
    main(sys.argv[1:])
