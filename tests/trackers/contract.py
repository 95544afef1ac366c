"""Each row is in the tracker once, in order and whole, whenever the process that writes it is killed. RONDO_TRACKER names the tracker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

TRACKER = os.environ["RONDO_TRACKER"]
HERE = Path(__file__).resolve().parent
RUN: dict[str, Any] = {
    "kind": "run",
    "run": "demo-1",
    "feed": "trainer",
    "policy": "small",
    "opened": "2026-11-26T10:00:00.123456789Z",
    "config": {"group_size": 8, "policy": "small"},
}
COUNT = 24


def row(step: int) -> dict[str, Any]:
    figures = {"reward/mean": step / 32, "staleness/max": float(step % 3), "throughput/step_seconds": 1.5}
    # As many as make wandb's file longer than one of its blocks.
    figures |= {f"filler/{number}": float(step + number) for number in range(60)}
    if step % 2:
        figures["logprob_gap/mean_abs"] = 0.25
    return {"kind": "step", "step": step, "time": f"2026-11-26T10:{step:02}:00.5Z", "sequence": 10 * step, "figures": figures}


def lines(through: int = COUNT, complete: bool = True) -> str:
    told = [RUN, *(row(step) for step in range(1, through + 1)), {"kind": "end", "complete": complete}]
    return "".join(json.dumps(line) + "\n" for line in told)


@pytest.fixture
def at(tmp_path: Path) -> Path:
    return tmp_path


def variables(at: Path) -> dict[str, str]:
    return {
        **os.environ,
        "XDG_STATE_HOME": str(at / "state"),
        "HOME": str(at / "home"),
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{at}/mlflow.db",
        "TRACKIO_DIR": str(at / "trackio"),
        "HF_HUB_OFFLINE": "1",
    }


def command() -> list[str]:
    return [sys.executable, "-m", "rondo.track", "demo-1", "--to", TRACKER, "--json"]


def track(at: Path, text: str) -> dict[str, Any]:
    ended = subprocess.run(command(), input=text, env=variables(at), cwd=at, text=True, capture_output=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def found(at: Path) -> list[tuple[int, dict[str, float]]]:
    run_id = "demo-1-trainer-" + sha256(RUN["opened"].encode()).hexdigest()[:8]
    ended = subprocess.run(
        [sys.executable, str(HERE / "readback.py"), str(at), run_id], env=variables(at), cwd=at, text=True, capture_output=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return [(step, figures) for step, figures in json.loads(ended.stdout.splitlines()[-1])]


def whole(at: Path, through: int = COUNT) -> None:
    there = found(at)
    assert [step for step, _ in there] == list(range(1, through + 1))
    for step, figures in there:
        assert figures == pytest.approx(row(step)["figures"]), step


def killed(at: Path, through: int) -> None:
    """A process that is killed when it has said that it wrote the row of a step, in the middle of whatever it does then."""
    with subprocess.Popen(command(), env=variables(at), cwd=at, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(lines(through)[: lines(through).rindex("\n", 0, -1) + 1])  # without the end
        process.stdin.flush()
        for line in process.stdout:
            if json.loads(line).get("step") == through:
                break
        process.kill()


def test_a_finished_run_is_written_once(at: Path) -> None:
    assert track(at, lines())["written"] == COUNT
    whole(at)
    again = track(at, lines())
    assert (again["written"], again["skipped"], again["last"]) == (0, COUNT, COUNT)
    whole(at)


def test_a_run_goes_on_after_each_kill(at: Path) -> None:
    for through in (3, 9, 10, 17):
        killed(at, through)
    track(at, lines(complete=False))
    whole(at)


def test_a_run_goes_on_after_it_was_stopped(at: Path) -> None:
    first = track(at, lines(5, complete=False))
    assert (first["written"], first["complete"]) == (5, False)
    second = track(at, lines())
    assert (second["written"], second["skipped"]) == (COUNT - 5, 5)
    whole(at)


def test_two_processes_do_not_write_one_run(at: Path) -> None:
    with subprocess.Popen(command(), env=variables(at), cwd=at, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin is not None and first.stdout is not None
        first.stdin.write(json.dumps(RUN) + "\n" + json.dumps(row(1)) + "\n")
        first.stdin.flush()
        first.stdout.readline()
        second = subprocess.run(command(), input=lines(), env=variables(at), cwd=at, text=True, capture_output=True)
        first.stdin.write(json.dumps({"kind": "end", "complete": True}) + "\n")
        first.stdin.close()
        first.wait()
    assert second.returncode == 1 and "another process" in second.stderr
    whole(at, 1)


def test_rows_that_break_off_are_written_and_said(at: Path) -> None:
    ended = subprocess.run(command(), input=lines(2)[:-30], env=variables(at), cwd=at, text=True, capture_output=True)
    assert ended.returncode == 1 and "rondo.track:" in ended.stderr
    whole(at, 2)


@pytest.mark.skipif(TRACKER not in ("tensorboard", "wandb"), reason="the others keep rows in transactions")
def test_a_torn_file_ends_at_its_last_whole_row(at: Path) -> None:
    track(at, lines(6, complete=False))
    pattern = {"tensorboard": "runs/demo-1/trainer/events.*", "wandb": "wandb/offline-run-*/*.wandb"}[TRACKER]
    (file,) = at.glob(pattern)
    there = file.read_bytes()
    # wandb has records behind its rows.
    cut = len(there) - 40 if TRACKER == "tensorboard" else len(there) * 2 // 3
    file.write_bytes(there[:cut])
    had = len(found(at))
    assert 0 < had < 6
    assert track(at, lines())["written"] == COUNT - had
    whole(at)


def test_another_tracker_that_is_missing_is_named(at: Path) -> None:
    other = "wandb" if TRACKER != "wandb" else "mlflow"
    ended = subprocess.run([*command()[:-2], other], input=lines(), env=variables(at), cwd=at, text=True, capture_output=True)
    assert ended.returncode == 3 and f"pip install {other}" in ended.stderr, ended.stderr
