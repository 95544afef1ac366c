"""Runs the processes of a row, measures them, and kills them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import workload

HERE = Path(__file__).resolve().parent
CLIENT = HERE.parents[1] / "clients/python"
#: Seconds until a row is given up.
PATIENCE = 300
#: Seconds without a batch behind a restart, after which nothing more is expected. Rondo's leases of the killed process must end first.
QUIET, QUIET_RONDO = 6, 90
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Row:
    rival: str
    variant: str = ""
    python: Path = field(default=Path(sys.executable))

    @property
    def name(self) -> str:
        return f"{self.rival}-{self.variant}" if self.variant else self.rival


class Process:
    """A process of a row, and the lines that it prints."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=environment, text=True)
        self.log, self.lines = log, queue.Queue[dict[str, Any]]()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))

    def alive(self) -> None:
        """RuntimeError when the process has ended."""
        if self.process.poll() is not None and self.lines.empty():
            lines = self.log.read_text(errors="replace").strip().splitlines()
            errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
            raise RuntimeError(f"a process ended: {(errors or lines or ['it said nothing'])[-1]}")

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


class Running:
    """The processes of a row: what holds the queue, if it has a process of its own, the producer and the trainer."""

    def __init__(self, row: Row, folder: Path, settings: dict[str, Any], producing: bool) -> None:
        driver = HERE / row.rival
        environment = {**os.environ, "PYTHONPATH": f"{driver}:{HERE}:{CLIENT}", "PYTHONDONTWRITEBYTECODE": "1"}
        log = folder / "log"
        self.processes: list[Process] = []

        def start(*command: str) -> Process:
            self.processes.append(Process([str(word) for word in command], environment, log))
            return self.processes[-1]

        told = json.dumps(settings)
        code = (driver / "driver.py").read_text()
        if "\ndef server(" in code:  # the command is the driver's: it is asked in the rival's own environment
            asked = "import driver, json, sys; print(json.dumps(driver.server(json.loads(sys.argv[1]))))"
            done = subprocess.run([row.python, "-c", asked, told], env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            start(*json.loads(done.stdout.strip().splitlines()[-1]))
        # A driver without a producer has one that is a child of its trainer.
        self.producer = start(row.python, HERE / "drive.py", "produce", told) if producing and "\nclass Producer" in code else None
        self.consumer = start(row.python, HERE / "drive.py", "consume", told)
        self.produced: dict[str, Any] = {}
        self.batches: list[dict[str, Any]] = []

    def line(self, process: Process, seconds: float = PATIENCE) -> dict[str, Any] | None:
        """What a process says next; None when there is nothing within these seconds. RuntimeError when any of the row's has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                return process.lines.get(timeout=0.2)
            except queue.Empty:
                for each in self.processes:
                    each.alive()
        return None

    def ready(self) -> None:
        for process in filter(None, (self.producer, self.consumer)):
            if self.line(process) is None:
                raise RuntimeError(f"a process was not ready within {PATIENCE} s")

    def go(self) -> None:
        self.consumer.go()
        if self.producer:
            self.producer.go()

    def wait(self, quiet: float = PATIENCE) -> None:
        """Until the trainer has taken all it is to take, or nothing came for so long; and until the producer has put all."""
        while line := self.line(self.consumer, quiet):
            if "batch" in line:
                self.batches.append(line)
            if "began" in line:
                self.produced = line
            if "done" in line:
                break
        if self.producer:
            self.produced = self.line(self.producer) or {}

    def spent(self) -> float:
        """Processor seconds of the processes and all they have started."""
        return sum(used for _, used in self.tree().values())

    def tree(self) -> dict[int, tuple[int, float]]:
        """The processes and their children, by number, with processor seconds."""
        known: dict[int, tuple[int, float]] = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                try:
                    fields = (path / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                known[int(path.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK)
        mine = {p.process.pid for p in self.processes}
        while more := {pid for pid, (parent, _) in known.items() if parent in mine} - mine:
            mine |= more
        return {pid: known[pid] for pid in mine if pid in known}

    def kill(self) -> None:
        """End all of it at once, as a machine that stops does."""
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for p in self.processes:
            p.process.wait()


@cache
def expected(trajectories: int, tokens: int) -> list[list[float]]:
    """What every trajectory must add up to at the trainer."""
    return [workload.figures(t.ids, t.logprobs, t.mask) for group in workload.groups(trajectories, tokens) for t in group]


def whole(batches: list[dict[str, Any]], trajectories: int, tokens: int) -> list[int]:
    """The numbers of the trajectories in batches, each of which must be whole."""
    given = [figures for line in batches for figures in line["batch"]]
    for number, *sums in given:
        want = expected(trajectories, tokens)[int(number)][1:]
        if abs(sums[0] - want[0]) > 0 or abs(sums[1] - want[1]) > 0.5 or sums[2] != want[2]:
            raise RuntimeError(f"trajectory {number} came as {sums}, not as {want}")
    return [int(figures[0]) for figures in given]


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def settings_of(row: Row, place: Path, trajectories: int, tokens: int, take: int) -> dict[str, Any]:
    """What all processes of a row are told."""
    return {
        "dir": str(place),
        "port": port(),
        "variant": row.variant,
        "trajectories": trajectories,
        "tokens": tokens,
        "take": take,
        "after": 0,
    }


def measure(row: Row, folder: Path, trajectories: int, tokens: int) -> dict[str, float]:
    """Put trajectories until the trainer has the last one as arrays."""
    place = Path(tempfile.mkdtemp(dir=folder))
    settings = settings_of(row, place, trajectories, tokens, trajectories)
    running = Running(row, folder, settings, True)
    try:
        running.ready()
        before = running.spent()
        running.go()
        running.wait()
        spent = running.spent() - before
        numbers = whole(running.batches, trajectories, tokens)
    finally:
        running.kill()
        shutil.rmtree(place, ignore_errors=True)
    if sorted(numbers) != list(range(trajectories)):
        raise RuntimeError(f"{len(set(numbers))} of {trajectories} trajectories came, {len(numbers) - len(set(numbers))} of them again")
    seconds, million = running.batches[-1]["at"] - running.produced["began"], trajectories * tokens / 1e6
    push = running.produced["ended"] - running.produced["began"]
    return {
        "trajectories_s": trajectories / seconds,
        "mtok_s": million / seconds,
        "push_mtok_s": million / push,
        "cpu_s_per_mtok": spent / million,
    }


def kill(row: Row, folder: Path, trajectories: int, tokens: int) -> dict[str, int]:
    """Kill all processes when everything was put and one batch trained on, start again what holds the queue and the trainer, and count."""
    place = Path(tempfile.mkdtemp(dir=folder))
    settings = settings_of(row, place, trajectories, tokens, workload.BATCH)
    try:
        first = Running(row, folder, settings, True)
        try:
            first.ready()
            first.go()
            first.wait()
        finally:
            first.kill()
        trained = whole(first.batches, trajectories, tokens)
        left = trajectories - len(trained)
        second = Running(row, folder, {**settings, "take": left, "after": 1}, False)
        try:
            second.ready()
            second.consumer.go()
            second.wait(QUIET_RONDO if row.rival == "rondo" else QUIET)
        finally:
            second.kill()
        came = whole(second.batches, trajectories, tokens)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    seen = trained + came
    return {
        "acknowledged": trajectories,
        "trained": len(trained),
        "came": len(came),
        "lost": trajectories - len(set(seen)),
        "twice": len(seen) - len(set(seen)),
    }
