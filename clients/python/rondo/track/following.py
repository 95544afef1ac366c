"""Rows into a tracker, in order, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import RondoError
from .rows import Ended, Row, Run, read
from .tracker import Tracker

__all__ = ["Counts", "track"]


@dataclass
class Counts:
    """What became of the rows."""

    written: int = 0
    skipped: int = 0  # the tracker had them already
    last: int = 0
    complete: bool = False
    place: str = ""


def track(lines: Iterable[str], expect: str, connect: Callable[[Run], Tracker], told: Callable[[Row], None] = lambda row: None) -> Counts:
    """Write the rows of the run `expect` that the tracker has not. told is called for each row that is written."""
    values = read(lines)
    run = next(values, None)
    if not isinstance(run, Run):
        raise RondoError("the rows do not begin with their run")
    if run.name != expect:
        raise RondoError(f"these are rows of run {run.name!r}, not of {expect!r}")
    tracker = connect(run)
    counts = Counts(place=tracker.place)
    try:
        counts.last = tracker.last()
        for value in values:
            if isinstance(value, Ended):
                counts.complete = value.complete
            elif isinstance(value, Row):
                if value.step <= counts.last:
                    counts.skipped += 1
                    continue
                tracker.write(value)
                counts.written, counts.last = counts.written + 1, value.step
                told(value)
    finally:
        tracker.close(counts.complete)
    return counts
