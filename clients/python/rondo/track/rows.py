"""The lines of `rondo run steps --json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from ..errors import RondoError

__all__ = ["Ended", "Row", "Run", "read"]


@dataclass(frozen=True)
class Run:
    """The run that the rows are of, the first line."""

    name: str
    feed: str
    policy: str
    opened: str
    config: dict[str, Any]

    @property
    def id(self) -> str:
        """The same for the same run and feed, and another one for a run of the same name on another plane."""
        return f"{self.name}-{self.feed}-{sha256(self.opened.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Row:
    """One training step."""

    step: int
    time: float  # seconds since 1970
    figures: dict[str, float]


@dataclass(frozen=True)
class Ended:
    """The last line: all rows that there were have come. `complete` is true where no step can follow."""

    complete: bool


def read(lines: Iterable[str]) -> Iterator[Run | Row | Ended]:
    """The lines as values, in their order. RondoError for a line that is none, and for rows that end without a last line."""
    ended = False
    for line in lines:
        try:
            told = json.loads(line)
            kind = told["kind"]
            if kind == "run":
                yield Run(told["run"], told["feed"], told["policy"], told["opened"], dict(told["config"]))
            elif kind == "step":
                yield Row(int(told["step"]), _seconds(told["time"]), {name: float(value) for name, value in told["figures"].items()})
            elif kind == "end":
                ended = True
                yield Ended(bool(told["complete"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RondoError(f"this is no line of `rondo run steps --json`: {line[:200]!r} ({error})") from None
    if not ended:
        raise RondoError("the rows broke off before their last line: see why `rondo run steps` ended, and start again")


def _seconds(text: str) -> float:
    # Go writes nanoseconds, of which Python 3.10 reads no more than six digits.
    whole, point, rest = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(whole + "+00:00").timestamp() + (float("0." + rest) if point else 0.0)
