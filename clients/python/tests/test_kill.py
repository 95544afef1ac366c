"""A trainer that is killed anywhere: every batch counts once in the final weights, and what comes again is the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rondo

from .conftest import Plane, bring
from .trainer import learn

STEPS = 6
POINTS = ("given", "consumed", "saved", "published", "checkpointed")


def train(
    plane: Plane, run: str, file: Path, every: int, *die: str, steps: int = STEPS, adapters: str = "none"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.trainer", str(plane.dir), run, str(file), str(every), str(steps), adapters, *die]
    return subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("every", [1, 3])
def test_killed_at_every_point(client: rondo.Client, plane: Plane, tmp_path: Path, every: int) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 2 * STEPS)
    file = tmp_path / "checkpoint.json"
    for number, point in enumerate(POINTS):
        done = train(plane, run, file, every, point, str(number + 1))
        assert done.returncode == -9, done.stdout + done.stderr
    if every == 1:  # killed while it goes on from its checkpoint
        assert train(plane, run, file, every, "resumed", str(len(POINTS))).returncode == -9
    done = train(plane, run, file, every)
    assert done.returncode == 0, done.stderr
    journal = [line.split() for line in file.with_suffix(".journal").read_text().splitlines()]
    assert len({tuple(line) for line in journal}) == STEPS  # a step's bytes are the same each time
    assert len(journal) > STEPS
    expected = np.zeros(8)
    with rondo.Feed(run, "trainer", client=client, observe=True, timeout=30) as feed:  # as if it had never died
        for batch in feed:
            expected = learn(expected, batch)
            if batch.step == STEPS:
                break
    assert json.loads(done.stdout.removeprefix("weights ")) == expected.tolist()
    plane.command("audit", run)


def test_a_redelivered_batch_counts_once_for_every_trainer(client: rondo.Client, plane: Plane, tmp_path: Path) -> None:
    """What each adapter gives of a batch that comes again is the same, and a trainer behind it is where one is that never died."""
    run, file, steps = plane.open_run(client), tmp_path / "checkpoint.json", 4
    bring(client, run, 1, 2 * steps)
    for point, step in (("consumed", "1"), ("saved", "2"), ("published", "3")):
        done = train(plane, run, file, 1, point, step, steps=steps, adapters="all")
        assert done.returncode == -9, done.stdout + done.stderr
    done = train(plane, run, file, 1, steps=steps, adapters="all")
    assert done.returncode == 0, done.stderr
    assert len(file.with_suffix(".journal").read_text().splitlines()) > steps, "no batch came again"
    expected = np.zeros(8)
    with rondo.Feed(run, "trainer", client=client, observe=True, timeout=30) as feed:
        for batch in feed:
            expected = learn(expected, batch, "all")
            if batch.step == steps:
                break
    assert json.loads(done.stdout.removeprefix("weights ")) == expected.tolist()
