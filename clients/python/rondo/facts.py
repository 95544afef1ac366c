"""Reading the log: facts of a run by their subject, in the order in which they happened."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from .connection import Connection, Link, pause
from .errors import Damaged, NotFound, RolledBack
from .objects import Ref, Store, fetch
from .payload import payload

__all__ = ["CATALOGUE", "Fact", "Log", "subject"]

#: The reserved name of what outlives a run: weights, openings and closings.
CATALOGUE = "_"

#: Seconds between two looks at the log when nothing wakes the reader up.
POLL = 1.0


def subject(run: str, type: str, entity: str) -> str:
    """Where facts of a type (batch.ready) about an entity are; * is any one."""
    kind, name = type.split(".")
    return f"rondo.v1.{run}.{kind}.{entity}.{name}"


def _stream(run: str) -> str:
    return "RONDO" if run == CATALOGUE else f"RONDO_{run}"


@dataclass(frozen=True)
class Fact:
    """One immutable fact of the log."""

    sequence: int
    type: str
    entity: str
    headers: dict[str, str]
    data: dict[str, Any]

    def same(self, other: Fact) -> bool:
        """Whether the other one, of the same log, is this fact: a log that was rolled back has others in the same places."""
        return self.sequence == other.sequence and all(self.headers.get(n) == other.headers.get(n) for n in ("ce-id", "ce-time"))


class Log:
    """The facts of a plane."""

    def __init__(self, connection: Connection, store: Store) -> None:
        self._connection, self._store = connection, store

    async def next(self, run: str, subject: str, sequence: int) -> Fact | None:
        """The first fact on a subject from a sequence on; None while there is none."""
        return await self._get(run, {"seq": max(1, sequence), "next_by_subj": subject})

    async def last(self, run: str, subject: str) -> Fact | None:
        """The last fact on a subject; None while there is none."""
        return await self._get(run, {"last_by_subj": subject})

    async def _get(self, run: str, which: dict[str, Any]) -> Fact | None:
        try:
            told = await self._connection.request(f"$JS.API.STREAM.MSG.GET.{_stream(run)}", which)
        except NotFound as error:
            if "stream" in str(error):
                raise NotFound(f"there is no run {run!r}: `rondo run list` lists the runs") from None
            return None
        message = told["message"]
        headers = dict(_headers(base64.b64decode(message.get("hdrs", ""))))
        body = base64.b64decode(message.get("data", ""))
        if "ce-dataref" in headers:  # then the body is a reference to the real one
            body = await asyncio.to_thread(fetch, self._store, Ref.parse(json.loads(body)))
        tokens = message["subject"].split(".")
        try:
            data = payload(body)
        except ValueError as error:
            raise Damaged(f"fact {message['seq']} of run {run}: {error}") from None
        return Fact(int(message["seq"]), f"{tokens[3]}.{tokens[5]}", tokens[4], headers, data)

    async def _holds(self, run: str, sequence: int, read: Fact | None) -> None:
        """RolledBack where the log ends before what stood before a sequence, or another fact is there now than was read."""
        last = await self.last(run, f"rondo.v1.{run}.>")
        end = last.sequence if last else 0
        if end < sequence - 1:
            raise RolledBack(
                f"the log of run {run} was rolled back: fact {sequence - 1} was read, and it ends at {end}; see `rondo doctor`"
            )
        if read is None:
            return
        now = await self._get(run, {"seq": read.sequence})
        if now and not now.same(read):
            raise RolledBack(f"the log of run {run} was rolled back: fact {read.sequence} is another one than was read; see `rondo doctor`")

    async def follow(
        self, run: str, subject: str, sequence: int, last: asyncio.Event | None = None, read: Fact | None = None
    ) -> AsyncGenerator[Fact, None]:
        """All facts on a subject from a sequence on, those to come too; once `last` is set only those that are there. read: the one before.

        What is published wakes it up, but only the log says what is there. On another connection it looks whether the last fact is there
        still: RolledBack where it is not.
        """
        news, wait = asyncio.Event(), POLL
        async with AsyncExitStack() as stack:
            watched: Link | None = None
            checked: Link | None = None
            while True:
                link = await self._connection.link()
                if link is not checked and (checked is not None or read is not None):
                    await self._holds(run, sequence, read)
                checked = link
                fact = await self.next(run, subject, sequence)
                if await self._connection.link() is not checked:
                    continue  # it may come from the log as it is now
                if fact is not None:
                    sequence, wait, read = fact.sequence + 1, POLL, fact
                    yield fact
                    continue
                if last is not None and last.is_set():
                    return
                link = await self._connection.link()
                if link is not watched:
                    stack.push_async_callback(await link.watch(subject, news))
                    watched = link
                    continue  # something may have come before the subscription
                woken = await pause(wait, news)
                news.clear()
                # The server passes a message on before it is stored.
                wait = 0.002 if woken else min(2 * wait, POLL)


def _headers(raw: bytes) -> Iterator[tuple[str, str]]:
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            yield name, value.strip()
