"""Submitting facts to the intake: everything from outside goes onto the log through it."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import nats
from nats.aio.msg import Msg

from .connection import Connection, Link
from .errors import IntakeError, PermissionDenied, RondoError
from .objects import Store, put_blob

__all__ = ["Answer", "Intake", "Stated"]

#: A fact to be stated: its type, its entity, and what it says.
Stated = tuple[str, str, Mapping[str, Any]]

#: Largest body that travels inline, in bytes; a larger one is stored, and its reference travels.
MAX_INLINE = 128 << 10

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPE = re.compile(r"[a-z_]{1,64}\.[a-z_]{1,64}")


@dataclass(frozen=True)
class Answer:
    """Where a stated fact stands on the log: its identity and its sequence in the run's stream."""

    id: str
    sequence: int


class Intake:
    """The intake of a plane, as outsiders submit facts to it."""

    def __init__(self, connection: Connection, store: Store, source: str) -> None:
        self._connection, self._store, self._source = connection, store, source

    async def state(self, run: str, type: str, entity: str, data: Mapping[str, Any], *, id: str | None = None) -> Answer:
        """State a fact, and repeat it until the intake answers. The same id is one fact, however often it is stated.

        IntakeError when the intake refuses it.
        """
        return await self._submit(run, type, entity, data, id, f"{type} of {entity}")

    async def state_together(self, run: str, group: str, facts: Sequence[Stated]) -> Answer:
        """State the opening of an outsider's group and facts of its rollouts in one submission, all of them or none.

        What stands on the log already is passed over. IntakeError when one of them is refused.
        """
        told = [{"type": type, "entity": entity, "data": data} for type, entity, data in facts]
        return await self._submit(run, "group.opened", group, told, None, f"facts of group {group}")

    async def _submit(self, run: str, type: str, entity: str, data: object, id: str | None, what: str) -> Answer:
        if not _TYPE.fullmatch(type):
            raise ValueError(f"event type {type!r}: want KIND.NAME, as in run.paused")
        for name, value in (("run", run), ("entity", entity)):
            if not _TOKEN.fullmatch(value):
                raise ValueError(f"{name} {value!r}: use letters, digits, - and _, at most 64")
        kind, name = type.split(".")
        headers = {"Nats-Msg-Id": id or uuid.uuid4().hex, "ce-source": self._source}
        body = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        if len(body) > MAX_INLINE:
            ref = await asyncio.to_thread(put_blob, self._store, body)
            headers["ce-dataref"], body = ref.key, json.dumps(ref.told()).encode()
        subject = f"rondo.in.{run}.{kind}.{entity}.{name}"
        told = await self._ask(subject, body, headers)
        while wait := int(told.get("retry_after_ms", 0)):  # only a quota is spent
            await asyncio.sleep(min(wait / 1000, 60))
            told = await self._ask(subject, body, headers)
        if error := told.get("error"):
            raise IntakeError(f"{what}: {error}")
        return Answer(str(told.get("id", "")), int(told.get("sequence", 0)))

    async def _ask(self, subject: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        """Publish to the intake's stream; the intake's answer comes to another subject than the server's."""

        async def send(link: Link) -> asyncio.Future[Msg]:
            stored, acknowledged = link.expect()
            reply, answer = link.expect()
            asked = {**headers, "Rondo-Reply": reply, "Nats-Expected-Stream": "RONDO_IN"}
            await link.publish(subject, body, reply=stored, headers=asked)
            acknowledged.add_done_callback(lambda ack: _check(ack, answer))
            return answer

        told: dict[str, Any] = json.loads((await self._connection.ask(send)).data)
        return told


def _check(acknowledged: asyncio.Future[Msg], answer: asyncio.Future[Msg]) -> None:
    """What the server does not store the intake will never see."""
    if answer.done() or acknowledged.cancelled():
        return
    if (error := acknowledged.exception()) is not None:
        if isinstance(error, PermissionDenied):
            answer.set_exception(error)
        return
    message = acknowledged.result()
    if message.headers and message.headers.get("Status") == "503":
        answer.set_result(message)
        return
    told = json.loads(message.data or b"{}")
    if told.get("duplicate"):  # dropped, within the moment that the server remembers ids: only a later one is answered
        answer.set_exception(nats.errors.TimeoutError())
        return
    refusal = told.get("error")
    if refusal and refusal.get("code") != 503:
        answer.set_exception(RondoError(f"the intake's stream did not take it: {refusal.get('description', refusal)}"))
