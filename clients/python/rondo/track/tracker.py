"""How every tracker is used."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from ..errors import RondoError
from .rows import Row, Run

__all__ = ["Tracker", "Unavailable", "alone"]


class Unavailable(RondoError):
    """The tracker's package is not installed; the message says how to install it."""


class Tracker(Protocol):
    """A run in a tracker. Nobody else writes to it meanwhile."""

    #: Where a person finds the run.
    place: str

    def last(self) -> int:
        """The last step that the tracker has, 0 for none. Rows are whole: a step that it has, it has with all figures."""

    def write(self, row: Row) -> None:
        """Write a row whose step is after the last one."""

    def close(self, complete: bool) -> None:
        """Write what is still in memory, and say whether the run has ended."""


@contextmanager
def alone(to: str, target: str, run: Run) -> Iterator[None]:
    """Hold a tracker's run for this process. The kernel gives it back however the process ends. RondoError where another one has it."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "rondo/track"
    state.mkdir(parents=True, exist_ok=True)
    name = f"{to}-{run.id}-{sha256(target.encode()).hexdigest()[:8]}.lock"
    with (state / name).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RondoError(f"another process on this machine writes run {run.name} to {to} already (it holds {state / name})") from None
        yield
