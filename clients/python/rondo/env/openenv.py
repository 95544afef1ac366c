"""Environments of OpenEnv's servers, played by a model that reads and writes text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .environment import Action, Answer, Step, Task

__all__ = ["OpenEnv"]


def _text(seen: Any) -> str:
    """An observation as JSON, without what the server says of itself."""
    if isinstance(seen, Mapping):
        seen = {name: value for name, value in seen.items() if name != "metadata" or value}
    return json.dumps(seen, ensure_ascii=False, default=str)


class OpenEnv:
    """A maker of episodes for `rondo.env.serve`.

    connect: makes a client of OpenEnv for a task, such as `GenericEnvClient(base_url=…)`. Each episode has a client, and so a session, of its own.
    say: what the model reads of an observation. Default: its JSON.
    act: the action that a text of the model's means; ValueError for none, which is told to the model. Default: the text as JSON.
    restart: what becomes of an episode whose worker is lost. "replay" plays its recorded turns again in a new session and compares; "fail" fails it.

    An episode begins with the rollout's seed, and with what the task's data says in "reset". A server that is away or refuses fails the rollout as a
    machine that failed.
    """

    def __init__(
        self,
        connect: Callable[[Task], Any],
        *,
        say: Callable[[Any], str] = _text,
        act: Callable[[str], Any] = json.loads,
        restart: str = "replay",
    ) -> None:
        if restart not in ("replay", "fail"):
            raise ValueError(f'restart {restart!r}: must be "replay" or "fail"')
        self._connect, self._say, self._act, self._restart = connect, say, act, restart

    def __call__(self) -> _Episode:
        """Make an episode."""
        return _Episode(self._connect, self._say, self._act, self._restart)


class _Episode:
    def __init__(self, connect: Callable[[Task], Any], say: Callable[[Any], str], act: Callable[[str], Any], restart: str) -> None:
        self._connect, self._say, self._act, self.restart = connect, say, act, restart
        self._session: Any = None

    def reset(self, task: Task) -> Answer:
        self._session = self._connect(task).sync()
        self._session.connect()
        result = self._session.reset(**{"seed": task.seed % (1 << 31), **task.data.get("reset", {})})
        return Step(self._say(result.observation), float(result.reward or 0), bool(result.done))

    def step(self, action: Action) -> Answer:
        try:
            meant = self._act(action.content)
        except ValueError as error:
            return f"That is no action: {error}"[:500]
        result = self._session.step(meant)
        return Step(self._say(result.observation), float(result.reward or 0), bool(result.done))

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
