"""Captured calls: what a model server elsewhere, or an environment server, recorded for training, as facts of a run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from .client import AsyncClient
from .connection import within
from .errors import Damaged, Failed, IntakeError
from .facts import Fact, subject
from .sync import Client

__all__ = ["AsyncCaptures", "Capture", "Captures", "entity"]

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGEST = "sha256-"


def entity(rollout: str) -> str:
    """The entity of a rollout's capture: the name where that may be one, else the beginning of its digest."""
    if _TOKEN.fullmatch(rollout) and not rollout.startswith(_DIGEST):
        return rollout
    return _DIGEST + hashlib.sha256(rollout.encode()).hexdigest()[: 64 - len(_DIGEST)]


@dataclass(frozen=True)
class Capture:
    """What is on the log of a rollout's capture."""

    #: The records of its calls as they were given, by the calls' ids.
    entries: dict[str, str]
    #: Whether a call has begun or was lost that has no record: then nobody may train on the rollout.
    incomplete: bool
    #: The sequence of its last fact; 0 where there is none. It changes with everything that is captured.
    last: int


class AsyncCaptures:
    """The captures of an external run, on asyncio.

    What a call states is on the log, and seen by everybody, when it returns. Repeated with the same content it does nothing.
    """

    def __init__(self, client: AsyncClient, run: str) -> None:
        self._client, self._run = client, run

    async def begin(self, rollout: str, call: str) -> None:
        """State that a call is about to be made."""
        await self._state("capture.begun", rollout, {"call": call})

    async def record(self, rollout: str, call: str, entry: str) -> None:
        """State a call's record, a JSON object. IntakeError where the call has another one, or the capture is retired."""
        await self._state("capture.recorded", rollout, {"call": call, "entry": entry})

    async def lose(self, rollout: str, call: str = "") -> None:
        """State that a call, "" for nobody knows which one, has no record and never will."""
        await self._state("capture.incomplete", rollout, {"call": call[:100]})

    async def read(self, rollout: str) -> Capture:
        """What is captured up to now. Failed where it is retired."""
        entries, begun, last, lost = {}, set(), 0, False
        async for fact in self.facts(rollout):
            last = fact.sequence
            if fact.type == "capture.retired":
                raise Failed(f"the capture of rollout {rollout} is retired, at sequence {last} of run {self._run}")
            lost |= fact.type == "capture.incomplete"
            if fact.type == "capture.begun":
                begun.add(fact.data["call"])
            elif fact.type == "capture.recorded":
                entries[fact.data["call"]] = fact.data["entry"]
        return Capture(entries, lost or not begun <= entries.keys(), last)

    async def retire(self, rollout: str, last: int) -> bool:
        """End a capture whose calls were handed on; False where something was captured since `last`. Its facts stay on the log."""
        try:
            await self._state("capture.retired", rollout, {"last": last})
        except IntakeError:
            return False
        return True

    async def facts(self, rollout: str, name: str = "*", sequence: int = 1) -> AsyncGenerator[Fact, None]:
        """The facts of a capture from a sequence of the log on, those of one type or, with *, all."""
        log, on = self._client.log, subject(self._run, f"capture.{name}", entity(rollout))
        while (fact := await within(log.next(self._run, on, sequence), self._client.timeout, f"read the capture of {rollout}")) is not None:
            if fact.data.get("rollout") != rollout:
                raise Damaged(f"fact {fact.sequence} of run {self._run} is not of the capture of rollout {rollout}")
            yield fact
            sequence = fact.sequence + 1

    async def _state(self, type: str, rollout: str, said: dict[str, object]) -> None:
        await self._client.state(self._run, type, entity(rollout), {"rollout": rollout, **said})


class Captures:
    """AsyncCaptures for programs that are not on asyncio. Its calls block, and may come from several threads."""

    def __init__(self, client: Client, run: str) -> None:
        self._loop, self._captures = client.loop, AsyncCaptures(client.asynchronous, run)

    def begin(self, rollout: str, call: str) -> None:
        """See AsyncCaptures.begin."""
        self._loop.run(self._captures.begin(rollout, call))

    def record(self, rollout: str, call: str, entry: str) -> None:
        """See AsyncCaptures.record."""
        self._loop.run(self._captures.record(rollout, call, entry))

    def lose(self, rollout: str, call: str = "") -> None:
        """See AsyncCaptures.lose."""
        self._loop.run(self._captures.lose(rollout, call))

    def read(self, rollout: str) -> Capture:
        """See AsyncCaptures.read."""
        return self._loop.run(self._captures.read(rollout))

    def retire(self, rollout: str, last: int) -> bool:
        """See AsyncCaptures.retire."""
        return self._loop.run(self._captures.retire(rollout, last))

    def records(self, rollout: str, sequence: int) -> Iterator[tuple[int, str]]:
        """The records from a sequence of the log on, each with its own."""
        for fact in self.facts(rollout, "recorded", sequence):
            yield fact.sequence, fact.data["entry"]

    def facts(self, rollout: str, name: str = "*", sequence: int = 1) -> Iterator[Fact]:
        """See AsyncCaptures.facts."""
        found = self._captures.facts(rollout, name, sequence)
        while (fact := self._loop.run(_next(found))) is not None:
            yield fact


async def _next(facts: AsyncGenerator[Fact, None]) -> Fact | None:
    return await anext(facts, None)
