"""A Rondo plane with everything embedded, for runs against an engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: What a run can take on a loaded machine.
PATIENCE = 600


class Plane:
    def __init__(self, rondo: Path, folder: Path) -> None:
        self.rondo, self.folder = rondo, folder / "plane"
        self.tasks = folder / "tasks"
        shutil.copytree(ROOT / "demo/packs/sample/shell-expenses", self.tasks / "shell-expenses")
        self.log = (folder / "plane.log").open("w")
        self.process = subprocess.Popen([rondo, "up", "--dir", self.folder, "--durability", "100ms"], stdout=self.log, stderr=self.log)
        until("the plane is there", lambda: self.said("run", "list") is not None)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()

    def said(self, *words: object) -> Any:
        """What a command prints as lines of JSON; None where it fails."""
        done = subprocess.run(
            [str(w) for w in (self.rondo, *words, "--dir", self.folder, "--json")], capture_output=True, text=True, check=False
        )
        return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else None

    def open(self, run: str, endpoint: str, rollouts: int, **settings: Any) -> None:
        """Open a run of one group. JSON is YAML, too."""
        file = self.folder / f"{run}.json"
        settings = {
            "policy": "toy",
            "endpoint": endpoint,
            "steps": 1,
            "group_size": rollouts,
            "feeds": [{"name": "trainer", "groups_per_batch": 1}],
            "tools": {"only": ["run_terminal_cmd", "read_file"]},
            **settings,
        }
        settings["sampling"] = {"seed": "none", "max_tokens": 256, **settings.get("sampling", {})}
        file.write_text(json.dumps(settings))
        done = subprocess.run(
            [self.rondo, "run", "open", run, "--file", file, "--tasks", self.tasks, "--dir", self.folder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def events(self, run: str, kind: str) -> list[dict[str, Any]]:
        return self.said("events", "tail", run, "--type", kind) or []

    def finished(self, run: str, rollouts: int) -> dict[str, list[dict[str, Any]]]:
        """The turns of the rollouts, once they have been scored."""

        def failed() -> None:
            if tries := self.events(run, "rollout.failed"):
                raise AssertionError(f"run {run}: {json.dumps(tries[0]['data'])}")

        def scored() -> bool:
            failed()
            return len(self.events(run, "rollout.scored")) >= rollouts

        until(f"run {run} has {rollouts} rollouts", scored)
        turns: dict[str, list[dict[str, Any]]] = {}
        for event in self.events(run, "rollout.turn_sampled"):
            turns.setdefault(event["entity"], []).append(event["data"])
        return turns


def until(what: str, there: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not there():
        if time.monotonic() > end:
            raise AssertionError(f"after {PATIENCE} s it is not yet so that {what}")
        time.sleep(0.2)
