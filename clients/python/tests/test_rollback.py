"""A follower of a log whose server was restored from an older copy."""

from __future__ import annotations

import asyncio
import base64
import json
import types
from typing import Any

import pytest

import rondo
from rondo.errors import NotFound
from rondo.facts import Log
from rondo.versions import follow as versions

SUBJECT = "rondo.v1.r.batch.trainer.ready"


class Wire:
    """One connection. Whoever waits on it sees it break, and the server restored."""

    def __init__(self, server: OldServer) -> None:
        self.server = server

    async def watch(self, _: str, event: asyncio.Event) -> Any:
        self.server.restore()
        event.set()

        async def stop() -> None:
            pass

        return stop


class OldServer:
    """A connection to a log that ends before what the follower has read, once the connection has been lost."""

    def __init__(self, facts: list[str], restored: list[str]) -> None:
        self.facts, self.restored, self._link = facts, restored, Wire(self)

    def restore(self) -> None:
        """Bring the older copy up: the connection is another one."""
        self.facts, self._link = self.restored, Wire(self)

    async def link(self) -> Any:
        return self._link

    async def request(self, _: str, which: dict[str, Any]) -> dict[str, Any]:
        at = len(self.facts) if "last_by_subj" in which else which["seq"]
        if not 0 < at <= len(self.facts):
            raise NotFound("no message found")
        headers = f"NATS/1.0\r\nce-id: {self.facts[at - 1]}\r\nce-time: t\r\n\r\n".encode()
        body = base64.b64encode(json.dumps({"version": at}).encode()).decode()
        return {"message": {"subject": SUBJECT, "seq": at, "hdrs": base64.b64encode(headers).decode(), "data": body}}


@pytest.mark.parametrize(
    ("restored", "why"),
    [(["a"], "fact 2 was read, and it ends at 1"), (["a", "x", "y"], "fact 2 is another one"), (["a", "x"], "fact 2 is another one")],
)
def test_a_follower_notices_a_rollback(restored: list[str], why: str) -> None:
    async def follow() -> list[str]:
        server = OldServer(["a", "b"], restored)
        read = []
        log: Any = Log(server, None)  # type: ignore[arg-type]

        async def whole() -> None:
            async for fact in log.follow("r", SUBJECT, 1):
                read.append(fact.headers["ce-id"])
                if len(read) == 2:
                    server.restore()

        with pytest.raises(rondo.RolledBack, match=why):
            await whole()
        return read

    assert asyncio.run(asyncio.wait_for(follow(), 30)) == ["a", "b"]


def test_a_follower_that_waits_notices_a_rollback() -> None:
    async def follow() -> None:
        server = OldServer(["a", "b"], ["a"])
        log: Any = Log(server, None)  # type: ignore[arg-type]
        with pytest.raises(rondo.RolledBack, match="fact 2 was read, and it ends at 1"):
            await anext(log.follow("r", SUBJECT, 3))

    asyncio.run(asyncio.wait_for(follow(), 30))


def test_a_follower_goes_on_after_a_restart() -> None:
    async def follow() -> list[str]:
        server = OldServer(["a", "b"], ["a", "b", "c"])
        read = []
        log: Any = Log(server, None)  # type: ignore[arg-type]
        async for fact in log.follow("r", SUBJECT, 1):
            read.append(fact.headers["ce-id"])
            if len(read) == 2:
                server.restore()
            if len(read) == 3:
                break
        return read

    assert asyncio.run(asyncio.wait_for(follow(), 30)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("restored", "why"),
    [(["a"], "fact 2 was read, and it ends at 1"), (["a", "x"], "fact 2 is another one"), (["a", "x", "y"], "fact 2 is another one")],
)
@pytest.mark.parametrize("waits", [True, False])
def test_versions_notice_a_rollback(restored: list[str], why: str, waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def number(_: Any, fact: Any) -> int:
        return int(fact.data["version"])

    monkeypatch.setattr("rondo.versions._version", number)

    async def follow() -> None:
        server = OldServer(["a", "b"], restored)
        plane: Any = types.SimpleNamespace(log=Log(server, None))  # type: ignore[arg-type]
        given: Any = versions(plane, "p", 0)
        assert await anext(given) == 2
        if not waits:  # the server comes back before the follower asks again
            server.restore()
        if not waits and len(restored) == 3:  # a version behind those that were given
            assert await anext(given) == 3
            return
        with pytest.raises(rondo.RolledBack, match="rolled back" if not waits else why):
            await anext(given)

    asyncio.run(asyncio.wait_for(follow(), 30))
