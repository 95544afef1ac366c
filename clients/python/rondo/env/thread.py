"""A thread for each episode. An environment may keep to one thread. One that hangs delays no other, and the process can still end."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Thread"]

T = TypeVar("T")


class Thread:
    """Runs functions one after the other. A daemon: the end of the process does not wait for it."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def call(self, function: Callable[..., T], *arguments: Any, seconds: float | None = None) -> T:
        """Run a function; TimeoutError when it takes longer. It goes on then, and nobody hears of it."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if result.done():
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def work() -> None:
            value: Any = None
            problem: BaseException | None = None
            try:
                value = function(*arguments)
            except StopIteration as error:  # no future takes one
                problem = RuntimeError(f"StopIteration: {error}")
            except BaseException as error:
                problem = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, problem)

        self._work.put(work)
        try:
            return await asyncio.wait_for(result, seconds)
        except asyncio.TimeoutError:
            if result.done() and not result.cancelled() and result.exception() is not None:
                raise  # the function's own
            raise TimeoutError(f"{getattr(function, '__name__', 'it')} takes longer than {seconds:g} s") from None

    def end(self, last: Callable[[], Any] | None = None) -> None:
        """End it behind what it does now, and a last function whose errors nobody hears."""
        if last is not None:
            self._work.put(lambda: _quietly(last))
        self._work.put(None)


def _quietly(function: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):  # the episode is over: nothing follows from it
        function()
