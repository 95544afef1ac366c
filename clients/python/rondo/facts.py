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
from .errors import Damaged, NotFound
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

    async def follow(self, run: str, subject: str, sequence: int, last: asyncio.Event | None = None) -> AsyncGenerator[Fact, None]:
        """All facts on a subject from a sequence on, those to come too; once `last` is set only those that are there.

        What is published wakes it up, but only the log says what is there.
        """
        news, wait = asyncio.Event(), POLL
        async with AsyncExitStack() as stack:
            watched: Link | None = None
            while True:
                fact = await self.next(run, subject, sequence)
                if fact is not None:
                    sequence, wait = fact.sequence + 1, POLL
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
