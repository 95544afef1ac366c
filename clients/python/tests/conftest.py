"""A live plane for the tests that need one: `rondo up` of this repository, or of RONDO_BINARY."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rondo

ROOT = Path(__file__).resolve().parents[3]


def missing(why: str) -> None:
    """Skip what this machine lacks, or fail where nothing may be skipped."""
    if os.environ.get("RONDO_REQUIRE_ALL") == "1":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    if given := os.environ.get("RONDO_BINARY"):
        return given
    if shutil.which("go") is None:
        missing("there is no go command to build rondo with, and no RONDO_BINARY")
    path = tmp_path_factory.mktemp("bin") / "rondo"
    built = subprocess.run(["go", "build", "-o", str(path), "./cmd/rondo"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return str(path)


#: What a run.opened has to say of requests, null for what is not sent, and of restarts and the circuit breaker.
NOT_SENT = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
NEVER_PAUSED = ("agent_restarts", "hopeless_groups", "failure_window", "untrainable_groups", "no_signal_groups")

KEYS = {"AWS_ACCESS_KEY_ID": "rondo-test", "AWS_SECRET_ACCESS_KEY": "rondo-test-secret"}


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store in a real S3 server, which tools/s3dev or S3DEV_BINARY runs."""
    work = tmp_path_factory.mktemp("s3")
    program = os.environ.get("S3DEV_BINARY")
    if not program:
        program = str(work / "s3dev")
        if shutil.which("go") is None:
            missing("there is no go command to build tools/s3dev with")
        built = subprocess.run(["go", "build", "-C", str(ROOT / "tools/s3dev"), "-o", program, "."], capture_output=True, text=True)
        if built.returncode != 0:
            missing(f"tools/s3dev cannot be built here: {built.stderr}")
    (work / "objects" / "rondo").mkdir(parents=True)
    command = [program, "-dir", str(work / "objects")]
    with subprocess.Popen(command, env={**os.environ, **KEYS}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        yield f"s3://rondo/some/prefix?endpoint={server.stdout.readline().strip()}"
        server.stdin.close()


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block: behind a failure nobody waits for one that stands still."""
    with process:
        try:
            yield process
        finally:
            process.kill()


class Plane:
    """A `rondo up` in a directory, which may be killed and started again."""

    def __init__(self, binary: str, dir: Path, *arguments: str) -> None:
        self.binary, self.dir, self.arguments = binary, dir, arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)

    def start(self) -> None:
        endpoint = self.dir / "endpoint.json"
        endpoint.unlink(missing_ok=True)
        self.dir.mkdir(parents=True, exist_ok=True)
        with open(self.dir / "up.log", "ab") as out:
            command = [self.binary, "up", "--dir", str(self.dir), "--durability", "100ms", *self.arguments]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        until(lambda: endpoint.exists() or self._process is None or self._process.poll() is not None, 60, self.said)
        assert self._process.poll() is None, self.said()

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    def said(self) -> str:
        return (self.dir / "up.log").read_text()

    def open_run(self, client: rondo.Client, **changes: Any) -> str:
        """Open a run to which only outsiders bring rollouts: two groups of two make a batch."""
        run = f"run{next(self._names)}"
        config: dict[str, Any] = {
            "policy": f"policy-{run}",
            "endpoint": "",
            "external": True,
            "group_size": 2,
            "feeds": [{"name": "trainer", "groups_per_batch": 2}],
            "staleness": {"max": 1000},
            "advantage": {"estimator": "mean_centred"},
            "in_flight": 128,
            "sampling": {"temperature": 1, "max_tokens": 4096, **dict.fromkeys(NOT_SENT)},
            "limits": {"turns": 32, "tokens": 131072, "timeout": "10m", "tries": 5, **dict.fromkeys(NEVER_PAUSED, 0)},
            "pool": "pool",
            "min_isolation": "",
            "system_prompt": "",
            "tasks": [],
        }
        # A test's limits and sampling replace single keys, and the other keys stay.
        changes |= {name: {**config[name], **changes[name]} for name in ("limits", "sampling") if name in changes}
        client.state(run, "run.opened", run, {"config": {**config, **changes}})
        return run

    def command(self, *arguments: str) -> str:
        done = subprocess.run([self.binary, *arguments, "--dir", str(self.dir)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def until(check: Any, seconds: float, problem: Any = lambda: "") -> None:
    """Wait for something that is on its way."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {problem()}"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def short_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker here asks for work in short questions, so that it sees soon that its run is closed."""
    monkeypatch.setattr("rondo.env.lease.WAIT", 0.3)


@pytest.fixture(scope="session")
def plane(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A plane that all tests share."""
    live = Plane(binary, tmp_path_factory.mktemp("plane"))
    live.start()
    yield live
    live.stop()


@pytest.fixture
def own_plane(binary: str, tmp_path: Path) -> Iterator[Plane]:
    """A plane that a test may kill."""
    live = Plane(binary, tmp_path / "plane")
    live.start()
    yield live
    live.stop()


@pytest.fixture
def client(plane: Plane) -> Iterator[rondo.Client]:
    with rondo.Client(plane.dir, wait=60) as c:
        yield c


def conversation(seed: int) -> list[rondo.Message]:
    """Two turns with a tool's answer between them: 5 prompt, 4 sampled, 3 tool and 2 sampled tokens."""
    ids = np.random.default_rng(seed).integers(0, 50_000, 14)
    logprobs = -np.random.default_rng(seed + 1).random(14)
    call = {"id": "c1", "name": "run", "arguments": json.dumps({"command": "make"})}
    return [
        rondo.Message("system", "Be brief."),
        rondo.Message("user", "Mend it.", ids[:5].tolist()),
        rondo.Message("assistant", "I look.", ids[5:9].tolist(), logprobs[5:9].tolist(), tool_calls=[call], finish_reason="tool_calls"),
        rondo.Message("tool", "fine", ids[9:12].tolist(), name="run", tool_call_id="c1"),
        rondo.Message("assistant", "Done.", ids[12:].tolist(), logprobs[12:].tolist(), finish_reason="stop"),
    ]


def bring(client: rondo.Client, run: str, first: int, groups: int, size: int = 2) -> None:
    """Hand in groups of which every second member passes."""
    for g in range(first, first + groups):
        trajectories = [rondo.Trajectory(conversation(10 * g + i), reward=float(i % 2)) for i in range(size)]
        client.publish_group(run, group=f"g{g}", task="mend", trajectories=trajectories)
