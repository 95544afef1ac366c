"""Writes the task packs: python3 tasks.py FOLDER makes FOLDER/train and FOLDER/held-out, in the Harbor format.

Each task is to write three numbers to a file in reverse order. Every fourth one is held out: no run trains on it.
"""

import itertools
import pathlib
import random
import sys

TASK = """schema_version = "1.4"

[task]
name = "rondo/{name}"
description = "Write three numbers to a file in reverse order."

[metadata]
difficulty = "easy"

[metadata.rondo]
snapshot = "environment/repo"
verifier = "separate"

[verifier]
timeout_sec = 20

[environment]
network_mode = "no-network"
"""

# A tenth for a new file, whatever it is called, a tenth more for the right one, and the rest for its words: the share of them that
# are right where they stand.
TEST = """#!/bin/sh
reward() {
	echo "{\\"reward\\": $1}" >/logs/verifier/reward.json
	exit
}
workspace() {
	if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}
cd /app
workspace test -f answer.txt || {
	[ "$(workspace ls | wc -l)" -gt 1 ] && reward 0.1
	reward 0
}
answer=$(workspace head -c 1000 answer.txt)
set -f
set -- $answer
given=$# right=0
for word in $(cat /tests/expected); do
	[ "$word" = "$1" ] && right=$((right + 1))
	[ $# -gt 0 ] && shift
done
[ $given -lt 3 ] && given=3
thousandths=$((200 + 800 * right / given))
[ $thousandths -eq 1000 ] && reward 1
reward 0.$thousandths
"""


def write(folder, numbers):
    """Write one task."""
    name, answer = "reverse-" + "".join(numbers), " ".join(reversed(numbers))
    files = {
        "task.toml": TASK.format(name=name),
        "instruction.md": f"Write these numbers to answer.txt in reverse order: {' '.join(numbers)}\n",
        "environment/Dockerfile": "FROM debian:12-slim\nWORKDIR /app\nCOPY repo/ /app/\n",
        "environment/repo/numbers.txt": " ".join(numbers) + "\n",
        "tests/test.sh": TEST,
        "tests/expected": answer + "\n",
        "solution/solve.sh": f"#!/bin/sh\necho {answer} >answer.txt\n",
    }
    for path, text in files.items():
        path = folder / name / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(folder):
    """Write both packs."""
    tasks = list(itertools.product("1234", repeat=3))
    random.Random(1).shuffle(tasks)
    for i, numbers in enumerate(tasks):
        write(folder / ("train" if i % 4 else "held-out"), numbers)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
