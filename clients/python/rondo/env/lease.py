"""Taking work from the plane: a fact that no other worker has, for as long as this one says that it works on it."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from types import TracebackType

from ..connection import BROKEN, Connection, end

__all__ = ["EPISODES", "RATINGS", "Lease", "take"]

log = logging.getLogger("rondo.env")

#: The consumers of users' workers: of rollouts that begin, and of those that have finished.
EPISODES, RATINGS = "environment-started-v1", "environment-finished-v1"

#: Seconds between two signs of life. The plane gives the work to another worker 30 s after the last one.
BEAT = 8.0

#: Seconds that one question for work waits in the plane; less than the connection's patience.
WAIT = 3.0


@dataclass
class Lease:
    """Work that is this worker's while it is entered. Left without done() or later(), it is another one's at once."""

    connection: Connection
    subject: str
    sequence: int
    #: How often it was given to a worker, this time included.
    delivery: int
    _answer: str

    async def __aenter__(self) -> Lease:
        self._settled = False
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await end(self._beating)
        if not self._settled:
            await self.later(0)

    async def done(self) -> None:
        """It needs nobody any more."""
        self._settled = True
        await self._tell(b"+ACK")

    async def later(self, seconds: float) -> None:
        """Somebody shall take it up again after some seconds."""
        self._settled = True
        await self._tell(b"-NAK " + json.dumps({"delay": int(seconds * 1e9)}).encode())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            await self._tell(b"+WPI")

    async def _tell(self, word: bytes) -> None:
        try:
            link = await self.connection.link()
            await link.publish(self._answer, word)
        except BROKEN as problem:  # unheard, the work comes again
            log.debug("not told: %r", problem)


async def take(connection: Connection, run: str, consumer: str) -> Lease | None:
    """The next piece of work; None when there was none for a moment, as in a closed run whose consumers are gone."""
    subject = f"$JS.API.CONSUMER.MSG.NEXT.RONDO_{run}.{consumer}"
    body = json.dumps({"batch": 1, "expires": int(WAIT * 1e9)}).encode()

    message = await connection.ask(lambda link: link.pull(subject, body), unserved=True)
    if message.headers and message.headers.get("Status") == "503":
        await asyncio.sleep(1)  # it may be made yet
    if not message.reply or (message.headers and message.headers.get("Status")):
        return None
    told = message.metadata
    return Lease(connection, message.subject, told.sequence.stream, told.num_delivered, message.reply)
