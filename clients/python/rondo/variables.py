"""The environment variables that the client reads."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["check"]

_READ = (
    *("RONDO_DIR", "RONDO_NATS", "RONDO_STORE", "RONDO_NATS_CREDS", "RONDO_NATS_CA", "RONDO_NATS_CERT", "RONDO_NATS_KEY"),
    *("RONDO_GATEWAY", "RONDO_GATEWAY_KEY"),
)


def check(names: Iterable[str] | None = None) -> None:
    """ValueError for a variable that is one letter from one that the client reads: a misspelt one would leave the default in place.

    The program `rondo` refuses every RONDO_ variable that it does not know. The client knows its own alone.
    """
    for name in os.environ if names is None else names:
        if name in _READ or not name.startswith("RONDO"):
            continue
        if near := next((read for read in _READ if _near(name, read)), None):
            raise ValueError(f"environment variable {name}: nothing of Rondo reads it, did you mean {near}?")


def _near(a: str, b: str) -> bool:
    """Whether one letter is added, left out or changed, or two beside each other are swapped."""
    if len(a) == len(b):
        apart = [i for i in range(len(a)) if a[i] != b[i]]
        swapped = len(apart) == 2 and apart[1] == apart[0] + 1 and a[apart[0]] == b[apart[1]] and a[apart[1]] == b[apart[0]]
        return len(apart) == 1 or swapped
    long, short = (a, b) if len(a) > len(b) else (b, a)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
