"""The connection to the log's servers. It is made anew whenever it breaks: a restarted plane has another address."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import nats
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg
from nats.errors import AuthorizationError

from .access import Access
from .endpoint import redacted
from .errors import ConnectError, NotFound, PermissionDenied, RondoError

__all__ = ["Connection", "Link", "end", "pause", "within"]

T = TypeVar("T")

log = logging.getLogger("rondo")

#: Seconds that an answer may take before the question is asked again.
PATIENCE = 5.0
#: Seconds after which waiting for an answer is worth a line.
COMPLAINT = 30
#: Seconds after which waiting for a connection is: most often the address is wrong, or nothing was started.
DIALLING = 3.0
#: What the server says when it drops what a client sends, or refuses a subscription.
VIOLATION = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]*)\"", re.IGNORECASE)
#: What breaks with a connection, and is tried again on the next one.
BROKEN = (nats.errors.Error, OSError, asyncio.TimeoutError)


async def within(work: Awaitable[T], seconds: float | None, what: str) -> T:
    """Wait for some work, at most some seconds (None: as long as it takes); then TimeoutError says what was waited for."""
    try:
        return await asyncio.wait_for(work, seconds)
    except asyncio.TimeoutError:
        raise TimeoutError(f"{what}: nothing within {seconds:g} s") from None


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks until they are done: before Python 3.12, wait_for may swallow one cancellation."""
    live = {task for task in tasks if not task.done()}
    while waiting := {task for task in live if not task.done()}:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=0.1)
    for task in live:
        if not task.cancelled():
            task.exception()  # nobody else may ask how it took its end


async def cancellable(work: Coroutine[Any, Any, T] | asyncio.Future[T], seconds: float | None = None) -> T:
    """Wait for some work that is of no use to whoever is cancelled meanwhile, and be cancelled at once.

    Before Python 3.12, wait_for swallows a cancellation that comes with the result, also in a library: a loop would go on for ever.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        await end(task)
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


async def pause(seconds: float, event: asyncio.Event) -> bool:
    """Wait until an event is set, at most some seconds; whether it was."""
    try:
        return await cancellable(event.wait(), seconds)
    except asyncio.TimeoutError:
        return False


class Link:
    """One live connection. All answers come to one inbox and are told apart by the last token of their subject."""

    def __init__(self) -> None:
        self._nats, self._abandoned = NATS(), False
        self._inbox = ""
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._asked: dict[str, str] = {}  # by the answer's token, the subject that was asked
        self._denied: PermissionDenied | None = None  # no answer can be received
        self._error: Exception | None = None

    async def dial(self, urls: str, access: dict[str, Any]) -> None:
        """Connect; what breaks the connection later ends it."""
        options: dict[str, Any] = {
            "servers": [url.strip() for url in urls.split(",")],
            "name": "rondo-python",
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,  # of each server while it dials
            "reconnect_time_wait": 0.05,
            "connect_timeout": 5,
            "ping_interval": 10,
            "max_outstanding_pings": 2,
            "error_cb": self._failed,
            "closed_cb": self._lost,
            **access,
        }
        try:
            await self._nats.connect(**options)
        except nats.errors.NoServersError:
            raise self._error or nats.errors.NoServersError() from None
        except asyncio.CancelledError:  # a server that says nothing leaves a socket open
            await self._nats.close()
            raise
        self._inbox = self._nats.new_inbox()
        await self._nats.subscribe(self._inbox + ".*", cb=self._route)
        if self._abandoned:  # whoever dialled was cancelled
            await self._nats.close()

    @property
    def live(self) -> bool:
        """Whether it can still be used."""
        return bool(self._nats.is_connected)

    async def close(self) -> None:
        """Disconnect, or do so as soon as it is connected."""
        self._abandoned = True
        if self.live:
            await self._nats.close()

    def expect(self) -> tuple[str, asyncio.Future[Msg]]:
        """Make a subject to which one answer comes."""
        token = secrets.token_hex(8)
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        if self._denied is not None:
            answer.set_exception(self._denied)
            return f"{self._inbox}.{token}", answer
        answer.add_done_callback(lambda _: (self._waiting.pop(token, None), self._asked.pop(token, None)))
        self._waiting[token] = answer
        return f"{self._inbox}.{token}", answer

    async def pull(self, subject: str, body: bytes) -> asyncio.Future[Msg]:
        """Ask a consumer for a message. It comes under the subject of its storage: only its own subscription tells it from others."""
        inbox = self._nats.new_inbox()
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()

        async def settle(message: Msg) -> None:
            if not answer.done():
                answer.set_result(message)

        answer.add_done_callback(lambda _: (self._waiting.pop(inbox, None), self._asked.pop(inbox, None)))
        self._waiting[inbox], self._asked[inbox] = answer, subject
        subscription = await self._nats.subscribe(inbox, cb=settle)
        await subscription.unsubscribe(limit=1)
        await self._nats.publish(subject, body, reply=inbox)
        return answer

    async def publish(self, subject: str, body: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        """Send a message."""
        if reply.startswith(self._inbox + "."):
            self._asked[reply.rsplit(".", 1)[1]] = subject
        await self._nats.publish(subject, body, reply=reply, headers=headers)

    async def watch(self, subject: str, event: asyncio.Event) -> Callable[[], Awaitable[None]]:
        """Set an event whenever something is published to a subject; what it returns ends that."""

        async def wake(_: Msg) -> None:
            event.set()

        subscription = await self._nats.subscribe(subject, cb=wake)

        async def stop() -> None:
            if self.live:
                await subscription.unsubscribe()

        return stop

    async def _route(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rsplit(".", 1)[1])
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _failed(self, error: Exception) -> None:
        self._error = error  # the library would print it
        if found := VIOLATION.search(str(error)):
            self._refused(found[1].lower(), found[2])

    def _refused(self, what: str, subject: str) -> None:
        """The server drops what is not allowed and answers nothing, so whoever waits for that is told here."""
        denied = PermissionDenied(f"permission denied: the credentials do not allow {what} to {subject}")
        if what == "subscription":
            if not subject.lower().startswith(self._inbox.lower()):
                return  # only wakes who waits, who looks by himself, too
            self._denied = denied
        for token, answer in list(self._waiting.items()):
            if not answer.done() and (self._denied or self._asked.get(token, "").lower() == subject.lower()):
                answer.set_exception(denied)
                answer.exception()  # nobody may wait for it any more

    async def _lost(self) -> None:
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(nats.errors.ConnectionClosedError())
                answer.exception()  # nobody may wait for it any more


class Connection:
    """Finds the plane and stays connected to it."""

    def __init__(self, locate: Callable[[], str], access: Access | None = None) -> None:
        self._locate, self._access = locate, access or Access()
        self._link: Link | None = None
        self._dialling = asyncio.Lock()
        self._closed = False
        #: Why there is no connection now.
        self.problem: Exception = ConnectError("no answer from the plane")

    async def link(self) -> Link:
        """A live connection: the present one, or the next that can be made, however long that takes."""
        delay, began, told = 0.05, time.monotonic(), False
        async with self._dialling:
            while True:
                if self._closed:
                    raise RondoError("the client is closed")
                if self._link is not None and self._link.live:
                    return self._link
                await self._dial()
                if self._link is None:
                    if not told and time.monotonic() - began + delay > DIALLING:
                        told = True
                        log.warning("%s; trying again", self.problem)
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, 1.0)

    async def _dial(self) -> None:
        if self._link is not None:
            log.warning("the connection to the log is lost; connecting again")
        link, self._link = Link(), None
        access = self._access.options()  # what is wrong with these files does not pass by itself
        try:
            urls = self._locate()
            self.problem = ConnectError(f"NATS at {redacted(urls)} gives no answer")
            await cancellable(link.dial(urls, access))
        except asyncio.CancelledError:
            await link.close()
            raise
        except (ConnectError, *BROKEN) as error:
            if isinstance(error, AuthorizationError) or "authorization" in str(error).lower():
                raise ConnectError(f"NATS at {redacted(urls)} does not let this client in: check its credentials") from None
            place = "" if isinstance(error, ConnectError) else f"connect to NATS at {redacted(urls)}: "
            self.problem = ConnectError(f"{place}{error or type(error).__name__}")
            return
        if self._closed:
            await link.close()
            return
        self._link = link

    async def ask(self, send: Callable[[Link], Awaitable[asyncio.Future[Msg]]], unserved: bool = False) -> Msg:
        """Ask until there is an answer. A question that was answered on a connection that broke is asked again.

        unserved: that nobody serves the subject is an answer, too.
        """
        delay, told = 0.05, time.monotonic()
        while True:
            if time.monotonic() - told > COMPLAINT:
                told = time.monotonic()
                log.warning("the plane has not answered for %d s; asking again", COMPLAINT)
            link = await self.link()
            try:
                answer = await cancellable(await send(link), PATIENCE)
            except BROKEN as error:
                log.debug("asking again: %r", error)
            else:
                if unserved or not (answer.headers and answer.headers.get("Status") == "503"):  # nobody serves the subject yet
                    return answer
            await asyncio.sleep(delay)
            delay = min(2 * delay, 1.0)

    async def request(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask JetStream's API. Whatever passes by itself (a server that starts, an election) is waited for."""

        async def send(link: Link) -> asyncio.Future[Msg]:
            reply, answer = link.expect()
            await link.publish(subject, json.dumps(body).encode(), reply=reply)
            return answer

        while True:
            told: dict[str, Any] = json.loads((await self.ask(send)).data)
            error = told.get("error")
            if not error:
                return told
            if error.get("code") == 404:
                raise NotFound(error.get("description", "not found"))
            if error.get("code") != 503:
                raise RondoError(f"{subject}: {error.get('description', error)}")
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        """Disconnect for good."""
        self._closed = True
        if self._link is not None:
            await self._link.close()
