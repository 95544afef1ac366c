"""Rating finished rollouts by a user's reward function."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from ..errors import Damaged
from ..facts import Fact, subject
from ..objects import Ref, fetch
from ..plane import Plane
from ..workspace import workspace
from .environment import components
from .thread import Thread

__all__ = ["Rater", "Reward", "Rollout", "failure", "rate", "transcript"]


@dataclass(frozen=True)
class Rollout:
    """A finished rollout, as a reward function reads it."""

    run: str
    id: str
    task: str
    instruction: str
    #: What the tasks file says of the task beside its name and instruction; the model has not seen it.
    data: Mapping[str, Any]
    #: The conversation: {"role", "content"}, and where they are there "tool_calls", "name", "tool_call_id" and "reasoning".
    messages: list[dict[str, Any]]
    #: Why it ended: finished, max_turns, max_tokens, length, context or timeout.
    stop_reason: str
    _plane: Plane = field(repr=False)
    _archives: tuple[Any, ...] = field(repr=False)

    @property
    def answer(self) -> str:
        """What the model said last; "" where it said nothing."""
        return next((str(m["content"]) for m in reversed(self.messages) if m["role"] == "assistant"), "")

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The files of the workspace as the model left them, by their paths; none where the task has no workspace."""
        return workspace(self._plane.objects, *self._archives)


#: A reward function: a number, True or False, or the components of the reward by their names.
Reward = Callable[[Rollout], Any]


@dataclass(frozen=True)
class Rater:
    """Who rates the rollouts of a run."""

    plane: Plane
    run: str
    #: The function's name in the run file, and its tasks by their names.
    name: str
    tasks: Mapping[str, Mapping[str, Any]]
    worker: str
    #: What a call may take.
    seconds: float


async def rate(by: Rater, finished: Fact, reward: Reward) -> None:
    """Rate a rollout and state the result, unless it is rated or over. An error of the function is stated, too: it is no reward of 0."""
    plane, run, rollout = by.plane, by.run, finished.entity
    for over in ("rated", "scored", "failed"):
        if await plane.log.last(run, subject(run, f"rollout.{over}", rollout)) is not None:
            return
    said: dict[str, Any] = {"by": by.name, "worker": by.worker}
    thread, began = Thread(f"reward of {rollout}"), time.monotonic()
    try:
        read = await _read(by, finished)
        said |= await thread.call(lambda: _components(reward(read)), seconds=by.seconds)
    except Exception as error:
        said["failed"] = failure("reward function", error)
    finally:
        thread.end()
    said["duration_ms"] = 1000 * (time.monotonic() - began)
    await plane.intake.state(run, "rollout.rated", rollout, said)


def failure(what: str, error: BaseException) -> str:
    """What a fact says of an error of the user's code."""
    return f"{what}: {type(error).__name__}: {error}"[:900]


def _components(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        given = {"reward": given}
    if not given:
        raise ValueError("it gives no components")
    return components(given)


async def _read(by: Rater, finished: Fact) -> Rollout:
    name = str(finished.data["task"])
    task = by.tasks.get(name, {})
    file = await asyncio.to_thread(fetch, by.plane.objects, Ref.parse(finished.data["trajectory"]))
    return Rollout(
        by.run,
        finished.entity,
        name,
        str(task.get("instruction", "")),
        task.get("data") or {},
        transcript(file),
        str(finished.data["stop_reason"]),
        by.plane,
        (task.get("snapshot"), finished.data.get("workspace")),
    )


def transcript(file: bytes) -> list[dict[str, Any]]:
    """The messages of a trajectory file."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(file)).read_all()
        names = [name for name in ("role", "content", "name", "tool_call_id", "tool_calls", "reasoning") if name in table.column_names]
        rows = table.select(names).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, KeyError, ValueError) as error:
        raise Damaged(f"not a trajectory file: {error}") from None
    messages = []
    for row in rows:
        if row["role"] == "prompt":  # holds tokens alone
            continue
        if row.get("tool_calls"):
            row["tool_calls"] = json.loads(row["tool_calls"])
        messages.append({key: value for key, value in row.items() if value or key in ("role", "content")})
    return messages
