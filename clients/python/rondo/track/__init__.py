"""Writes the training steps of a run to an experiment tracker.

    rondo run steps demo-1 --follow --json | python -m rondo.track demo-1 --to tensorboard

`rondo track` does the same in one command. Each step becomes one row, keyed by its number. The tracker is asked which rows it has, so the
rows of a run that was stopped or killed go on behind the last one.
"""

from .following import Counts, track
from .rows import Ended, Row, Run, read
from .tracker import Tracker, Unavailable

__all__ = ["Counts", "Ended", "Row", "Run", "Tracker", "Unavailable", "read", "track"]
