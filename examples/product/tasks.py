"""Writes two task packs: python3 tasks.py FOLDER makes FOLDER/users and FOLDER/held-out, in the Harbor format.

Each task is a shell program of one line, with one fault. Users ask for the programs of the first pack. The others are held out: they
judge versions.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Of each program: its line without the fault, its line with it, and calls with the right output. Every kind of fault is in two programs.
YES = " && echo yes || echo no"
PROGRAMS = {
    "total": ("echo $(($1 + $2))", "echo $(($1 - $2))", {"3 4": 7, "5 1": 6, "10 7": 17}),
    "sum": ("echo $(($1 + $2 + $3))", "echo $(($1 - $2 + $3))", {"1 2 3": 6, "5 1 0": 6, "10 7 1": 18}),
    "adult": ('[ "$1" -ge 18 ]' + YES, '[ "$1" -gt 18 ]' + YES, {"18": "yes", "17": "no", "19": "yes"}),
    "ripe": ('[ "$1" -ge 5 ]' + YES, '[ "$1" -gt 5 ]' + YES, {"5": "yes", "4": "no", "6": "yes"}),
    "differ": ('[ "$1" != "$2" ]' + YES, '[ "$1" = "$2" ]' + YES, {"a a": "no", "a b": "yes", "b b": "no"}),
    "given": ('[ "$1" != none ]' + YES, '[ "$1" = none ]' + YES, {"a": "yes", "none": "no", "b": "yes"}),
    "next": ("echo $(($1 + 1))", "echo $(($1 + 2))", {"3": 4, "0": 1, "10": 11}),
    "double": ("echo $(($1 * 2))", "echo $(($1 * 3))", {"3": 6, "1": 2, "10": 20}),
    "area": ("echo $(($1 * $2))", "echo $(($1 / $2))", {"3 4": 12, "5 6": 30, "7 2": 14}),
    "volume": ("echo $(($1 * $2 * $3))", "echo $(($1 * $2 / $3))", {"2 3 4": 24, "5 6 2": 60, "1 7 2": 14}),
    "larger": (
        '[ "$1" -gt "$2" ] && echo "$1" || echo "$2"',
        '[ "$1" -lt "$2" ] && echo "$1" || echo "$2"',
        {"3 4": 4, "9 2": 9, "1 1": 1},
    ),
    "gain": ('[ "$1" -gt 0 ]' + YES, '[ "$1" -lt 0 ]' + YES, {"3": "yes", "-3": "no", "1": "yes"}),
    "even": ("[ $(($1 % 2)) -eq 0 ]" + YES, "[ $(($1 % 2)) -ne 0 ]" + YES, {"4": "yes", "3": "no", "0": "yes"}),
    "whole": ("[ $(($1 % $2)) -eq 0 ]" + YES, "[ $(($1 % $2)) -ne 0 ]" + YES, {"9 3": "yes", "9 2": "no", "8 4": "yes"}),
}

TASK = """schema_version = "1.4"

[task]
name = "rondo/{name}"
description = "{name}.sh prints something wrong."

[metadata]
difficulty = "easy"

[metadata.rondo]
snapshot = "environment/repo"
verifier = "separate"

[verifier]
timeout_sec = 60

[environment]
network_mode = "no-network"
"""

CHECK = """#!/bin/sh
status=0
check() {{
	want=$1
	shift
	got=$({under}sh {name}.sh "$@" 2>&1)
	[ "$got" = "$want" ] && echo "ok - $*" && return
	echo "not ok - $*: want '$want', got '$got'"
	status=1
}}
{calls}
"""

VERDICT = """[ $status -eq 0 ] && reward=1 || reward=0
echo "{\\"reward\\": $reward}" >/logs/verifier/reward.json
"""


def write(folder: Path, name: str) -> None:
    """Write one task."""
    right, wrong, cases = PROGRAMS[name]
    calls = "\n".join(f"check {want} {arguments}" for arguments, want in cases.items())
    files = {
        "task.toml": TASK.format(name=name),
        "instruction.md": f"{name}.sh prints something wrong. See `sh test.sh`.\n",
        "environment/Dockerfile": "FROM debian:12-slim\nWORKDIR /app\nCOPY repo/ /app/\n",
        f"environment/repo/{name}.sh": f"#!/bin/sh\n{wrong}\n",
        "environment/repo/test.sh": CHECK.format(under="", name=name, calls=calls) + "exit $status\n",
        "tests/test.sh": 'command -v under-test >/dev/null || under-test() { shift 2; timeout 5 "$@"; }\n'
        + CHECK.format(under="under-test -t 5 ", name=name, calls=calls)
        + VERDICT,
        "solution/solve.sh": f"cat >{name}.sh <<'END'\n#!/bin/sh\n{right}\nEND\n",
    }
    for path, text in files.items():
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def main(folder: Path) -> None:
    """Write both packs."""
    for i, name in enumerate(PROGRAMS):
        write(folder / ("held-out" if i % 2 else "users"), name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
