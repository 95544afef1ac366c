"""Environments of gymnasium, played by a model that reads and writes text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .environment import Action, Answer, Step, Task

__all__ = ["Gym"]


class Gym:
    """A maker of episodes for `rondo.env.serve`.

    make: makes the environment of gymnasium for a task.
    say: what the model reads of an observation.
    act: the action that a text of the model's means; ValueError for none, which is told to the model.

    An episode begins with the rollout's seed, so a worker that takes it over plays the recorded turns again.
    """

    def __init__(self, make: Callable[[Task], Any], *, say: Callable[[Any], str] = str, act: Callable[[str], Any] = int) -> None:
        self._make, self._say, self._act = make, say, act

    def __call__(self) -> _Episode:
        """Make an episode."""
        return _Episode(self._make, self._say, self._act)


class _Episode:
    def __init__(self, make: Callable[[Task], Any], say: Callable[[Any], str], act: Callable[[str], Any]) -> None:
        self._make, self._say, self._act = make, say, act
        self._environment: Any = None

    def reset(self, task: Task) -> Answer:
        self._environment = self._make(task)
        seen, _ = self._environment.reset(seed=task.seed % (1 << 31))
        return self._say(seen)

    def step(self, action: Action) -> Answer:
        try:
            meant = self._act(action.content)
        except ValueError as error:
            return f"That is no action: {error}"[:500]
        seen, reward, terminated, truncated, _ = self._environment.step(meant)
        return Step(self._say(seen), reward, bool(terminated or truncated))

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
