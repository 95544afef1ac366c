"""The guide's pages for users of other libraries, followed as a reader does: their files are written, and their commands are run in order."""

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

from .conftest import ROOT, Plane, ending

GUIDE = ROOT / "docs/guide"

#: The pages, by the names of their files.
PAGES = sorted(path.stem for path in GUIDE.glob("from-*.md"))

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)

#: The first line of a block that is a file.
NAMED = re.compile(r"# ([\w/-]+\.\w+)\n")

#: Programs of the pages that go on until their run is closed, or for as long as a reader trains.
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


def files(page: str) -> dict[str, str]:
    """The files that a page shows, by their names."""
    blocks = BLOCK.findall((GUIDE / f"{page}.md").read_text())
    found = {named[1]: body for _, body in blocks if (named := NAMED.match(body))}
    bare = [body for language, body in blocks if language not in ("sh", "text") and not NAMED.match(body)]
    assert not bare, f"{page}: this block has no name of a file in its first line, so nothing runs it:\n{bare}"
    return found


def commands(page: str) -> list[list[str]]:
    """The commands that a page shows."""
    blocks = BLOCK.findall((GUIDE / f"{page}.md").read_text())
    return [shlex.split(line, comments=True) for language, body in blocks if language == "sh" for line in body.splitlines()]


@contextmanager
def followed(
    page: str, folder: Path, binary: str, url: str, instead: Mapping[str, str] | None = None, trainer: str = ""
) -> Iterator[dict[str, Any]]:
    """Follow a page in an empty folder; its inference server is at url. What `rondo run show` says when a step is trained.

    instead: files whose packages this machine lacks, and what stands in for each. trainer: a program, for a page whose trainer is no
    file of its own.
    """
    for name, text in {**files(page), **(instead or {}), "other_trainer.py": trainer}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("http://127.0.0.1:8000/v1", url))
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python"), "PYTHONUNBUFFERED": "1"}
    variables.pop("RONDO_DIR", None)
    told: dict[str, Any] = {}
    shown, started = commands(page), list[subprocess.Popen[str]]()
    if trainer:
        shown.insert(next(i for i, c in enumerate(shown) if c[:3] == ["rondo", "run", "show"]), ["python3", "other_trainer.py"])
    with ExitStack() as lasting:
        for command in shown:
            match command:
                case ["pip", "install", what]:
                    assert (ROOT / what.partition("[")[0] / "pyproject.toml").exists(), what
                case ["rondo", "up", *arguments]:
                    plane = Plane(binary, folder / ".rondo", *arguments)
                    plane.start()
                    lasting.callback(plane.stop)
                case ["rondo", "run", "show", run]:
                    told = trained(binary, run, folder, started)
                case ["rondo", *arguments]:
                    ran([binary, *arguments], folder, variables)
                case ["python3", program, *arguments] if program in LASTING:
                    log = lasting.enter_context((folder / f"{program}.log").open("w"))
                    going = subprocess.Popen(
                        [sys.executable, program, *arguments], cwd=folder, env=variables, stdout=log, stderr=log, text=True
                    )
                    started.append(lasting.enter_context(ending(going)))
                case ["python3", *arguments]:
                    ran([sys.executable, *arguments], folder, variables)
                case _:
                    raise AssertionError(f"{page}: nothing runs {command}")
        assert told, f"{page} does not show that a step is trained"
        yield told


def ran(command: list[str], folder: Path, variables: Mapping[str, str]) -> None:
    """Run a command to its end."""
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def trained(binary: str, run: str, folder: Path, started: Sequence[subprocess.Popen[str]]) -> dict[str, Any]:
    """What the command line says of a run behind its first trained step. A program that fails is not waited for."""
    deadline, said = time.monotonic() + 300, ""
    while time.monotonic() < deadline and not any(process.poll() for process in started):
        shown = subprocess.run([binary, "run", "show", run, "--json"], cwd=folder, capture_output=True, text=True)
        said = shown.stdout + shown.stderr
        with contextlib.suppress(json.JSONDecodeError):
            told: dict[str, Any] = json.loads(shown.stdout)
            if told.get("policy_version", 0) > 0:
                return told
        time.sleep(0.2)
    logs = {path.name: path.read_text()[-2000:] for path in folder.glob("*.log")}
    raise AssertionError(f"no step of {run} was trained: {said}\n{json.dumps(logs, indent=1)}")
