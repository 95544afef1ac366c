"""One episode of an environment: from a rollout's start, or from where a lost worker left it, to its end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any

from ..errors import IntakeError
from ..facts import Fact
from ..plane import Plane
from .environment import Action, Adapted, Call, Task
from .rating import failure
from .record import Record
from .thread import Thread

__all__ = ["Stage", "play", "task_of"]


@dataclass(frozen=True)
class Stage:
    """Where the episodes of a run are played."""

    plane: Plane
    run: str
    tasks: Mapping[str, Mapping[str, Any]]
    worker: str
    #: What a step may take.
    seconds: float
    #: The run's limits of a rollout.
    limits: Mapping[str, Any] = field(default_factory=dict)
    #: The schemas of the run's tools, by their names.
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def action(self, turn: Fact, role: str = "") -> Action:
        """What the model did in a turn."""
        data = turn.data
        calls = tuple(
            Call(str(c["id"]), str(c["name"]), str(c["arguments"]), self.tools.get(str(c["name"]))) for c in data.get("tool_calls") or []
        )
        thoughts = (data.get("reasoning") or {}).get("text", "")
        used = int(data.get("prompt_tokens") or 0) + int(data.get("completion_tokens") or 0)
        last = int(data["turn"]) + 1 >= self.limits.get("turns", math.inf) or used >= self.limits.get("tokens", math.inf)
        return Action(
            int(data["turn"]), str(data.get("content") or ""), calls, str(thoughts), str(data.get("finish_reason") or ""), role, last
        )


async def play(stage: Stage, started: Fact, make: Callable[[], Adapted]) -> None:
    """Answer a rollout's turns until it is over. An error of the environment is stated: the rollout fails, and has no reward of 0."""
    record = Record(stage.plane, stage.run, started.entity, started)
    await record.read()
    if record.over:
        return
    episode = _Episode(stage, task_of(stage, started), record)
    try:
        await episode.play(make)
    except IntakeError as refused:
        await record.read()
        if not record.over and not record.grown:  # refused for what it says, and not since somebody else was faster
            await episode.fail(failure("intake", refused))
    finally:
        episode.end()


def task_of(stage: Stage, started: Fact) -> Task:
    """The task of a rollout's episode."""
    name = str(started.data["task"])
    task = stage.tasks.get(name, {})
    return Task(name, str(task.get("instruction", "")), task.get("data") or {}, int(started.data["seed"]), stage.run, started.entity)


class _Episode:
    def __init__(self, stage: Stage, task: Task, record: Record) -> None:
        self._stage, self._task, self._record = stage, task, record
        self._thread = Thread(f"episode {task.rollout}")
        self._environment: Adapted | None = None
        self._broken = False

    async def play(self, make: Callable[[], Adapted]) -> None:
        record = self._record
        self._environment = await self._try("environment", make)
        if self._environment is None:
            return
        if record.observed:
            if not await self._restored(self._environment):
                return
        elif not await self._say("reset", -1, lambda e: e.reset(self._task)):
            return
        if not await self._answer():
            return
        async with aclosing(record.more()) as facts:
            async for _ in facts:
                if record.over or record.grown or not await self._answer():
                    return

    async def _answer(self) -> bool:
        """Answer the last turn, where it has no answer; whether the episode goes on."""
        record = self._record
        if record.over:
            return False
        if len(record.turns) < self._record.stated:
            return True
        action = self._stage.action(record.turns[-1])
        return await self._say("step", action.turn, lambda e: e.step(action))

    async def _say(self, what: str, turn: int, speak: Callable[[Adapted], dict[str, Any]]) -> bool:
        began, environment = time.monotonic(), self._environment
        started = datetime.now(timezone.utc).isoformat()
        assert environment is not None
        said = await self._try(what, lambda: speak(environment))
        if said is None:
            return False
        said |= {"turn": turn, "worker": self._stage.worker, "started_at": started, "duration_ms": 1000 * (time.monotonic() - began)}
        await self._state(said)
        return not said.get("done", False)

    async def _state(self, said: Mapping[str, Any]) -> None:
        await self._stage.plane.intake.state(self._stage.run, "rollout.observed", self._task.rollout, said)
        self._record.stated += 1

    async def _try(self, what: str, function: Callable[[], Any]) -> Any:
        """What a function of the user's gives; None where it failed, which ends the rollout."""
        try:
            return await self._thread.call(function, seconds=self._stage.seconds)
        except Exception as error:
            self._broken = isinstance(error, TimeoutError)
            await self.fail(failure(what, error))
            return None

    async def fail(self, why: str) -> None:
        """End the rollout without an outcome, as soon as the environment has the word."""
        record = self._record
        if len(record.turns) < record.stated and not record.over:
            async with aclosing(record.more()) as facts:
                async for _ in facts:
                    if record.over or len(record.turns) >= record.stated:
                        break
        if record.over:
            return
        await self._state({"turn": len(self._record.turns) - 1, "failed": why, "worker": self._stage.worker})

    async def _restored(self, environment: Adapted) -> bool:
        """Bring a new environment to where the record is: from its state, or by the recorded turns."""
        record = self._record
        record.stated = len(record.observed)
        last = record.observed[-1].data
        if last.get("done") or last.get("failed"):
            return False
        if environment.saves and last.get("state"):

            def load() -> bool:
                environment.load(self._task, last["state"])
                return True

            return await self._try("load", load) is not None
        if not environment.repeats:
            await self.fail("its worker was lost, and the environment cannot go on elsewhere")
            return False
        for number, fact in enumerate(record.observed):
            again = await self._try("replay", partial(self._again, environment, number))
            if again is None:
                return False
            if not _same(again, fact.data):
                await self.fail(f"its worker was lost, and in another one the environment did not repeat itself at turn {number - 1}")
                return False
        return True

    def _again(self, environment: Adapted, number: int) -> dict[str, Any]:
        if number == 0:
            return environment.reset(self._task)
        return environment.step(self._stage.action(self._record.turns[number - 1]))

    def end(self) -> None:
        """Close the environment, behind what it does now."""
        self._thread.end(None if self._environment is None or self._broken else self._environment.close)


def _same(said: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether an environment says again what it said. Floats of JSON come back as they were."""
    return all((said.get(name) or None) == (recorded.get(name) or None) for name in ("messages", "reward", "components", "done"))
