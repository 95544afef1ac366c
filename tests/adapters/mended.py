"""A harness of examples/harnesses, in its own package, mends a task: the model follows a script, everything else is real."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

__all__ = ["ROOT", "binary", "mended", "turns"]

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "clients/python"), str(HERE.parents[1] / "examples/harnesses")]

from built import ROOT, binary

from tests.conftest import Plane
from tests.scripted import Script, gateway, model, open_run


def mended(scripts: dict[str, Script]) -> None:
    """Let each harness mend the task shell-slugify: its verifier gives it 1, and every turn has its tokens."""
    with tempfile.TemporaryDirectory() as name, gateway(binary(Path(name)), Path(name)) as (plane, url):
        os.environ |= {"RONDO_DIR": str(plane.dir), "RONDO_GATEWAY": url}
        for harness, script in scripts.items():
            with model(script, exact=True) as served:
                run = harness.replace("_", "-")
                open_run(plane, run, served)
                verdict = importlib.import_module(harness).work(run, "shell-slugify").verdict()
                assert verdict.reward == 1, (harness, verdict)
                print(f"{harness}: the verifier gives {verdict.reward:g}, {turns(plane, run)} turns with their tokens")


def turns(plane: Plane, run: str) -> int:
    """How many turns the run's rollout has; each one has token ids, and as many log-probabilities."""
    folder = plane.dir / f"{run}-atif"
    plane.command("trajectories", "export", run, "--format", "atif", "--out", str(folder))
    found = 0
    for file in folder.rglob("*.json"):
        for step in json.loads(file.read_text())["steps"]:
            if step["source"] != "agent" or step.get("is_copied_context"):
                continue
            measured = step["metrics"]
            assert measured["prompt_token_ids"] and measured["completion_token_ids"], (run, file.name, step["step_id"])
            assert len(measured["logprobs"]) == len(measured["completion_token_ids"]), (run, file.name, step["step_id"])
            found += 1
    assert found, f"no turn of {run} is recorded"
    return found
