"""The command line of rondo.track."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from ..errors import RondoError
from .following import track
from .mlflow import MLflow
from .rows import Row, Run
from .tensorboard import TensorBoard
from .tracker import Tracker, Unavailable, alone
from .trackio import Trackio
from .wandb import Wandb

__all__ = ["main"]

#: The exit code where the tracker's package is missing.
UNAVAILABLE = 3


def connector(to: str, project: str, folder: Path) -> Callable[[Run], Tracker]:
    """What opens a run in a tracker."""
    openers: dict[str, Callable[[Run], Tracker]] = {
        "tensorboard": lambda run: TensorBoard(run, folder),
        "mlflow": lambda run: MLflow(run, project),
        "wandb": lambda run: Wandb(run, project),
        "trackio": lambda run: Trackio(run, project),
    }
    return openers[to]


def main(arguments: list[str] | None = None, out: TextIO | None = None) -> int:
    """Run the command line, which answers to out, standard output if it is left out; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m rondo.track",
        description="Write the training steps of a run to an experiment tracker. They come from `rondo run steps RUN --follow --json`.",
    )
    parser.add_argument("run", help="name of the run")
    parser.add_argument("--to", required=True, choices=["mlflow", "tensorboard", "trackio", "wandb"], help="the tracker")
    parser.add_argument("--project", default="rondo", help="project of wandb and trackio, experiment of MLflow (default: rondo)")
    parser.add_argument("--logdir", type=Path, default=Path("runs"), help="folder of TensorBoard (default: runs)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each row that is written, and one at the end")
    chosen = parser.parse_args(arguments)

    def told(row: Row) -> None:
        if chosen.json:
            print(json.dumps({"step": row.step}), file=out, flush=True)

    def connect(run: Run) -> Tracker:
        stack.enter_context(alone(chosen.to, str(chosen.logdir.resolve()) if chosen.to == "tensorboard" else chosen.project, run))
        return connector(chosen.to, chosen.project, chosen.logdir)(run)

    with ExitStack() as stack:
        try:
            counts = track(sys.stdin, chosen.run, connect, told)
        except (RondoError, OSError) as error:
            print(f"rondo.track: {error}", file=sys.stderr)
            return UNAVAILABLE if isinstance(error, Unavailable) else 1
        except KeyboardInterrupt:
            return 130
    if chosen.json:
        print(json.dumps({"to": chosen.to, **vars(counts)}), file=out)
    else:
        print(
            f"{counts.written} steps written to {chosen.to} ({counts.place}), {counts.skipped} were there; the last is {counts.last}",
            file=out,
        )
    return 0


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr  # trackers greet and say farewell
    sys.exit(main(out=answers))
