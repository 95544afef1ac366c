"""A plane that is killed and comes back, at another address, under a client that lives on."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import numpy as np
import pytest

import rondo

from .conftest import Plane, bring


def test_a_feed_survives_the_plane(own_plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    with rondo.Client(own_plane.dir, wait=60) as client:
        run = own_plane.open_run(client)
        bring(client, run, 1, 2)
        with rondo.Feed(run, "trainer", client=client, timeout=60) as feed:
            for step, end in ((1, own_plane.kill), (2, own_plane.stop)):
                batch = next(feed)
                assert batch.step == step
                address = (own_plane.dir / "endpoint.json").read_text()
                end()
                stated = threading.Thread(target=feed.consumed, args=(batch,), daemon=True)  # while nobody listens
                stated.start()
                own_plane.start()
                assert (own_plane.dir / "endpoint.json").read_text() != address
                stated.join(60)
                assert not stated.is_alive()
                bring(client, run, 2 * step + 1, 2)
                feed.publish_weights({"w": np.zeros(3)}, version=step, through_step=step)
                feed.checkpointed(batch)
            assert next(feed).step == 3
        own_plane.command("audit", run)
    assert "the connection to the log is lost" in caplog.text


def test_a_client_waits_for_a_plane_that_starts(own_plane: Plane) -> None:
    own_plane.stop()
    with pytest.raises(rondo.ConnectError, match="no plane runs in .*: start one with `rondo up --dir"):
        rondo.Client(own_plane.dir, wait=0.3)
    found: list[rondo.Client] = []
    waiting = threading.Thread(target=lambda: found.append(rondo.Client(own_plane.dir, wait=60)), daemon=True)
    waiting.start()
    own_plane.start()
    waiting.join(60)
    with found[0] as client:
        assert own_plane.open_run(client) == "run1"


def test_nobody_is_there() -> None:
    with pytest.raises(rondo.ConnectError, match="NATS at …@127.0.0.1:1") as caught:  # refused, or not yet
        rondo.Client(nats="nats://user:secret@127.0.0.1:1", store="/tmp")
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
    waits = inspect.signature(rondo.Client).parameters["wait"].default
    assert waits <= 2.0  # a program that is started beside its plane says how long it waits
    with pytest.raises(ValueError, match="nats needs store"):
        rondo.Client(nats="nats://127.0.0.1:1")


def test_a_swallowed_cancellation_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.12 a refusal that comes with the end of the wait hides that it has ended."""

    async def connect(*_: Any, **__: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionRefusedError from None

    monkeypatch.setattr("nats.aio.client.Client.connect", connect)

    async def dial() -> None:
        dialling = asyncio.ensure_future(rondo.AsyncClient(nats="nats://127.0.0.1:1", store="/tmp", wait=0.1).open())
        done, _ = await asyncio.wait({dialling}, timeout=30)
        assert done, "the client still dials"
        with pytest.raises(rondo.ConnectError, match=r"127\.0\.0\.1:1"):
            await dialling

    asyncio.run(dial())
