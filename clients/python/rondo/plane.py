"""The parts of a plane that a client works with."""

from __future__ import annotations

from dataclasses import dataclass

from .facts import Log
from .intake import Intake
from .objects import Store

__all__ = ["Plane"]


@dataclass(frozen=True)
class Plane:
    """An open plane: its facts, its intake and its store."""

    log: Log
    intake: Intake
    objects: Store
