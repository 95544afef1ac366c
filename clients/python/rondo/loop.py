"""An asyncio loop in a thread of its own, for programs that are not on asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .connection import end
from .errors import RondoError

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, which wait for them. close is run when the loop ends."""

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=_serve, args=(self._loop, close), name="rondo", daemon=True)
        self._thread.start()
        # A program that ends without closing still ends quietly.
        self._finish = weakref.finalize(self, _finish, self._loop, self._thread, self._process)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. An interrupt (Ctrl-C) cancels it."""
        if self._process != os.getpid() or self._loop.is_closed():
            work.close()
            raise RondoError("the client is closed, or was made before this process was forked: make one here")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread; a second time does nothing."""
        self._finish()


def _serve(loop: asyncio.AbstractEventLoop, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(close())
        loop.run_until_complete(end(*asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _finish(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process: int) -> None:
    if process == os.getpid() and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
