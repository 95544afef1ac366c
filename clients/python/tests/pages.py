"""The guide's pages for users of other libraries, followed as a reader does: their files are written, and their commands are run in order.

tests/adapters follows them, too, beside the packages of others, which have no pytest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs/guide"

#: The pages, by the names of their files.
PAGES = sorted(path.stem for path in GUIDE.glob("from-*.md"))

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)

#: The first line of a block that is a file.
NAMED = re.compile(r"# ([\w/-]+\.\w+)\n")

#: Programs that go on until their run is closed, or for as long as a reader trains.
LASTING = ("batches.py", "other_trainer.py", "reward.py", "train.py")

#: Stands in for a trainer whose package is not here: it takes the first batch of a run's feed, and publishes weights.
TRAINER = """
import numpy
import rondo

with rondo.Feed({run!r}, "trainer") as feed:
    batch = next(feed)
    feed.consumed(batch)
    feed.publish_weights({{"w": numpy.zeros(3, numpy.float32)}}, version=1, through_step=1)
    feed.checkpointed(batch)
"""


def blocks(page: str) -> list[tuple[str, str]]:
    """The blocks of a page, each with its language."""
    return BLOCK.findall((GUIDE / f"{page}.md").read_text())


def files(page: str) -> dict[str, str]:
    """The files that a page shows, by their names."""
    bare = [body for language, body in blocks(page) if language not in ("sh", "text") and not NAMED.match(body)]
    assert not bare, f"{page}: this block has no name of a file in its first line, so nothing runs it:\n{bare}"
    return {named[1]: body for _, body in blocks(page) if (named := NAMED.match(body))}


def commands(page: str) -> list[list[str]]:
    """The commands that a page shows."""
    return [shlex.split(line, comments=True) for language, body in blocks(page) if language == "sh" for line in body.splitlines()]


def words(page: str, column: int = 0) -> list[str]:
    """What a column of a page's table of words has in code: fields of settings, without values. `.b` behind `a.c` is `a.b`."""
    table = (GUIDE / f"{page}.md").read_text().partition("\n## Words\n")[2]
    found: list[str] = []
    for row in re.findall(r"^\| (.*) \|$", table, re.MULTILINE):
        before = ""
        for code in re.findall(r"(?<!\[)`([^`]+)`", row.split(" | ")[column]):
            word = re.split(r"[=:]", code)[0].replace("[]", "")
            before = before.rpartition(".")[0] + word if word.startswith(".") else word
            found.append(before)
    assert len(found) > 8, (page, found)
    return found


@contextmanager
def followed(
    page: str, folder: Path, binary: str, url: str, instead: Mapping[str, str] | None = None, trainer: str = ""
) -> Iterator[dict[str, Any]]:
    """Follow a page in an empty folder; its inference server is at url. What `rondo run show` says when a step is trained.

    instead: files whose packages this machine lacks, and what stands in for each. trainer: a program, for a page whose trainer is no
    file of its own.
    """
    for name, text in {**files(page), **(instead or {}), "other_trainer.py": trainer}.items():
        (folder / name).write_text(text.replace("http://127.0.0.1:8000/v1", url))
    shown = commands(page)
    if trainer:
        shown.insert(next(i for i, c in enumerate(shown) if c[:3] == ["rondo", "run", "show"]), ["python3", "other_trainer.py"])
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python"), "PYTHONUNBUFFERED": "1"}
    variables.pop("RONDO_DIR", None)
    told: dict[str, Any] = {}
    with ExitStack() as lasting:
        started: list[subprocess.Popen[bytes]] = []
        for program, *arguments in shown:
            command = [{"rondo": binary, "python3": sys.executable}.get(program, program), *arguments]
            if program == "pip":
                assert (ROOT / arguments[1].partition("[")[0] / "pyproject.toml").exists(), arguments
            elif arguments[0] == "up" or arguments[0] in LASTING:
                started.append(lasting.enter_context(going(command, folder, variables)))
                if arguments[0] == "up":
                    until(lambda: (folder / ".rondo/endpoint.json").exists(), folder, started)
            elif arguments[:2] == ["run", "show"]:
                until(lambda: told.update(state(command, folder)) or told.get("policy_version", 0) > 0, folder, started)  # noqa: B023
            else:
                done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert told, f"{page} does not show that a step is trained"
        yield told


@contextmanager
def going(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that goes on until the block ends. What it says is in a file beside it."""
    with ExitStack() as open_files:
        log = open_files.enter_context(open(folder / f"{Path(command[1]).stem}.log", "wb"))
        process = open_files.enter_context(subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log))
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def state(command: Sequence[str], folder: Path) -> dict[str, Any]:
    """What `rondo run show` says, or nothing while it fails."""
    done = subprocess.run([*command, "--json"], cwd=folder, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def until(check: Any, folder: Path, started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for something that is on its way, and not where a program has failed."""
    deadline = time.monotonic() + 300
    while not check():
        if time.monotonic() > deadline or any(process.poll() for process in started):
            logs = "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in folder.glob("*.log"))
            raise AssertionError(f"a program failed, or was not done within 300 s:\n{logs}")
        time.sleep(0.2)
