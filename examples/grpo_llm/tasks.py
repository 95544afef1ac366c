"""Writes the task packs: python3 tasks.py FOLDER makes FOLDER/train and FOLDER/held-out, in the Harbor format.

Each task is a small errand in a folder of text files, which one shell command does: copy a file, sort its lines, count them, and so
on. Each kind of errand comes with other names, words and lines; of every four tasks of a kind one is held out, and no run trains on it.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from pathlib import Path

FILES = "apples birds books cars cities cups days dogs fish games hats keys lamps maps nuts pens plums rooms ships trees".split()
NAMES = "adam anna boris clara david emma felix grace henry irene james karen leon maria nora oscar paula quentin rosa simon".split()
EACH = 8  # tasks of a kind

TASK = """schema_version = "1.4"

[task]
name = "rondo/{name}"
description = "An errand that one shell command does."

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

# Each file that the errand makes or changes counts the same, and so does each that it takes away once another one is right in part. A
# file that is there has 0.2; the rest is the share of its lines that are right where they stand. Half of the reward is lost where another
# file was touched.
TEST = r"""#!/bin/sh
workspace() {
	if command -v under-test >/dev/null; then under-test -t 5 "$@"; else timeout 5 "$@"; fi
}
reward() {
	printf '{"reward": %d.%03d}\n' $(($1 / 1000)) $(($1 % 1000)) >/logs/verifier/reward.json
}
cd /app || exit
reward 0
paths=0 sum=0 gone=0
while read -r path; do # of the files that are made or changed
	paths=$((paths + 1))
	workspace head -c 4096 "$path" >/tmp/got 2>/dev/null </dev/null || continue
	grep -qxF "$(sha256sum </tmp/got)$path" /tests/before && continue
	right=$(awk 'NR == FNR { want[FNR] = $0; n = FNR; next } { m = FNR } $0 == want[FNR] { right++ }
		END { if (m > n) n = m; print n ? int(800 * right / n) : 800 }' "/tests/after/$path" /tmp/got)
	[ -s "/tests/after/$path" ] || { [ -s /tmp/got ] || right=800; }
	sum=$((sum + 200 + right))
done </tests/made
while read -r path; do
	paths=$((paths + 1))
	workspace test -e "$path" </dev/null || gone=$((gone + 1000))
done </tests/gone
[ -s /tests/made ] && [ $sum -eq 0 ] && gone=0
sum=$(((sum + gone) / paths))
while read -r path; do
	digest=$(workspace head -c 4096 "$path" 2>/dev/null </dev/null | sha256sum)
	grep -qxF "$digest$path" /tests/before || { sum=$((sum / 2)); break; }
done </tests/kept
reward $sum
"""

Tree = dict[str, str]


def text(lines: list[str]) -> str:
    """Lines as a file has them."""
    return "".join(line + "\n" for line in lines)


def errand(kind: str, chance: random.Random) -> tuple[str, str, Tree, Tree]:
    """An instruction, the command that does it, and the files before and after."""
    a, b, other = (f"{name}.txt" for name in chance.sample(FILES, 3))
    word = chance.choice(NAMES)
    lines = chance.sample(NAMES, chance.randint(4, 7))
    before = {a: text(lines), other: text(chance.sample(NAMES, 3))}
    moved = {name: content for name, content in before.items() if name != a}
    count = chance.randint(2, 3)
    kinds: dict[str, Callable[[], tuple[str, str, Tree]]] = {
        "copy": lambda: (f"Copy {a} to {b}.", f"cp {a} {b}", {**before, b: before[a]}),
        "rename": lambda: (f"Rename {a} to {b}.", f"mv {a} {b}", {**moved, b: before[a]}),
        "delete": lambda: (f"Delete {a}.", f"rm {a}", moved),
        "write": lambda: (f"Write the word {word} to {b}.", f"echo {word} >{b}", {**before, b: text([word])}),
        "append": lambda: (f"Add the word {word} to the end of {a}.", f"echo {word} >>{a}", {**before, a: text([*lines, word])}),
        "sort": lambda: (f"Sort the lines of {a} and save them in {b}.", f"sort {a} >{b}", {**before, b: text(sorted(lines))}),
        "count": lambda: (
            f"Count the lines of {a} and save the number in {b}.",
            f"wc -l <{a} >{b}",
            {**before, b: text([str(len(lines))])},
        ),
        "first": lambda: (f"Save the first {count} lines of {a} in {b}.", f"head -n {count} {a} >{b}", {**before, b: text(lines[:count])}),
    }
    instruction, command, after = kinds[kind]()
    return instruction, command, before, after


KINDS = "copy rename delete write append sort count first".split()


def write(folder: Path, instruction: str, command: str, before: Tree, after: Tree) -> None:
    """Write one task."""
    made = [path for path, content in after.items() if before.get(path) != content]
    files = {
        "task.toml": TASK.format(name=folder.name),
        "instruction.md": instruction + "\n",
        "environment/Dockerfile": "FROM debian:12-slim\nWORKDIR /app\nCOPY repo/ /app/\n",
        "tests/test.sh": TEST,
        "tests/before": text([f"{hashlib.sha256(content.encode()).hexdigest()}  -{path}" for path, content in before.items()]),
        "tests/made": text(made),
        "tests/gone": text([path for path in before if path not in after]),
        "tests/kept": text([path for path, content in before.items() if after.get(path) == content]),
        "solution/solve.sh": f"#!/bin/sh\n{command}\n",
        **{f"environment/repo/{path}": content for path, content in before.items()},
        **{f"tests/after/{path}": after[path] for path in made},
    }
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)


def main(folder: Path) -> None:
    """Write both packs."""
    chance = random.Random(1)
    for kind in KINDS:
        errands = {}
        while len(errands) < EACH:  # no two with the same instruction
            instruction, *rest = errand(kind, chance)
            errands.setdefault(instruction, rest)
        for i, (instruction, rest) in enumerate(errands.items()):
            write(folder / ("train" if i % 4 else "held-out") / f"{kind}-{i}", instruction, *rest)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
