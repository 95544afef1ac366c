"""What the log has of a rollout in an environment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ..facts import Fact
from ..plane import Plane

__all__ = ["Record"]

#: Facts behind which nothing of an environment is awaited.
_OVER = ("rollout.finished", "rollout.scored", "rollout.failed")


class Record:
    """A rollout's turns and what its environment has said, as far as they were read."""

    def __init__(self, plane: Plane, run: str, rollout: str, started: Fact) -> None:
        """started: of this rollout, or of another one of its episode."""
        self.rollout = rollout
        self._plane, self._run = plane, run
        self._from = started.sequence + 1 if started.entity == rollout else 1
        self._subject = f"rondo.v1.{run}.rollout.{rollout}.>"
        self.started = started.entity == rollout
        self.turns: list[Fact] = []
        #: Answers, the opening first; and all that was said, those facts included that give the word to another role.
        self.observed: list[Fact] = []
        self.said: list[Fact] = []
        self.stated = 0  # observations of this worker, which are in `observed` when they have been read
        self.over = self.failed = False

    @property
    def grown(self) -> bool:
        """Whether somebody else has answered what this worker was about to answer."""
        return len(self.observed) > self.stated

    @property
    def awaits(self) -> bool:
        """Whether the environment has the word."""
        return len(self.observed) <= len(self.turns)

    @property
    def passed(self) -> bool:
        """Whether another role has the word before the last turn is answered."""
        return bool(self.said) and bool(self.said[-1].data.get("next"))

    async def read(self) -> None:
        """Take in what is there."""
        while (fact := await self._plane.log.next(self._run, self._subject, self._from)) is not None:
            self._take(fact)

    async def more(self) -> AsyncGenerator[Fact, None]:
        """What comes."""
        async with aclosing(self._plane.log.follow(self._run, self._subject, self._from)) as facts:
            async for fact in facts:
                self._take(fact)
                yield fact

    async def until(self, reached: Callable[[], bool]) -> None:
        """Take in what comes until something is so."""
        if reached():
            return
        async with aclosing(self.more()) as facts:
            async for _ in facts:
                if reached():
                    return

    def _take(self, fact: Fact) -> None:
        self._from = fact.sequence + 1
        if fact.type == "rollout.started":
            self.started = True
        elif fact.type == "rollout.turn_sampled":
            self.turns.append(fact)
        elif fact.type == "rollout.observed":
            self.said.append(fact)
            if not fact.data.get("next"):
                self.observed.append(fact)
        self.failed = self.failed or fact.type == "rollout.failed" or (fact.type == "rollout.observed" and bool(fact.data.get("failed")))
        self.over = self.over or fact.type in _OVER
