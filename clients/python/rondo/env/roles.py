"""An episode of several roles: one environment, and a rollout for each role, which has a turn when the environment gives it the word.

The fact behind a turn settles once how the episode goes on: by the answer, the end, or `next`, which gives the word to another role.
That fact holds everything that follows from the turn, so a worker that comes later, or at the same time, says the same. The other
facts of the episode are `held`: they repeat what is settled.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ..errors import IntakeError
from ..facts import Fact
from .arguments import unicode
from .environment import MAX_OBSERVED, MAX_STATE, Action, Task, components
from .episode import Stage, task_of
from .rating import failure
from .record import Record
from .thread import Thread

__all__ = ["End", "Next", "maker", "play_roles"]


@dataclass(frozen=True)
class Next:
    """Give the word to a role."""

    role: str
    #: A message of the user's to that role. Its first one takes the place of the task's instruction; "" keeps that.
    say: str = ""
    #: Answers to the calls of the turn, by their ids; then the role goes on itself.
    answers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    """End the episode: the reward of each role, 0 for one that is left out."""

    rewards: Mapping[str, float] = field(default_factory=dict)
    #: Other components of the reward, by role and name.
    components: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class _Stopped(Exception):
    """The episode cannot go on."""


def _decided(roles: Sequence[str], actor: str, action: Action | None, answer: Any) -> dict[str, Any]:
    """What an environment's answer settles, as JSON."""
    if isinstance(answer, End):
        if unknown := [r for r in (*answer.rewards, *answer.components) if r not in roles]:
            raise ValueError(f"the roles are {list(roles)}, not {unknown}")
        return {"end": {role: components(answer.components.get(role, {}), answer.rewards.get(role, 0.0)) for role in roles}}
    if not isinstance(answer, Next):
        raise TypeError(f"an environment with roles answers with Next or End, not with {type(answer).__name__}")
    if answer.role not in roles:
        raise ValueError(f"the roles are {list(roles)}, not {answer.role!r}")
    calls = action.calls if action else ()
    if calls and answer.role != actor:
        raise ValueError(f"{actor} has called tools: answer the calls, and give the word to it again")
    messages = []
    for call in calls:
        if call.id not in answer.answers:
            raise ValueError(f"the call {call.id} of {call.name} has no answer: give Next(role, answers={{call.id: text}})")
        messages.append({"role": "tool", "content": unicode(answer.answers[call.id]), "tool_call_id": call.id, "name": call.name})
    if answer.say:
        messages.append({"role": "user", "content": unicode(answer.say)})
    if (said := sum(len(m["content"].encode()) for m in messages)) > MAX_OBSERVED:
        raise ValueError(f"the environment says {said} bytes at once, at most {MAX_OBSERVED}")
    return {"role": answer.role, "messages": messages}


class _Generated:
    """A generator function as an environment: it yields Next, is sent actions, and returns End."""

    def __init__(self, function: Callable[[Task], Any]) -> None:
        self._function = function

    def reset(self, task: Task) -> Any:
        self._generator = self._function(task)
        return self._next(lambda: next(self._generator))

    def step(self, action: Action) -> Any:
        return self._next(lambda: self._generator.send(action))

    def close(self) -> None:
        self._generator.close()

    def _next(self, advance: Callable[[], Any]) -> Any:
        try:
            return advance()
        except StopIteration as end:
            return end.value


def maker(environment: Any) -> Callable[[], Any]:
    """A maker of episodes, of a class, a function that makes an environment, or a generator function."""
    return (lambda: _Generated(environment)) if inspect.isgeneratorfunction(environment) else environment


class _Roles:
    """What the log has of an episode: a record for each role."""

    def __init__(self, stage: Stage, roles: Sequence[str], started: Fact) -> None:
        group, member = str(started.data["group"]), int(started.data["member"])
        self.names = list(roles)
        self.records = {role: Record(stage.plane, stage.run, f"{group}-{member + i}", started) for i, role in enumerate(roles)}

    async def read(self) -> None:
        for record in self.records.values():
            await record.read()

    @property
    def facts(self) -> int:
        """How many facts were read."""
        return sum(len(record.said) + len(record.turns) + record.over for record in self.records.values())

    @property
    def settled(self) -> list[tuple[str, Fact]]:
        """The facts that settle something, in their order, with their roles."""
        found = [
            (role, fact)
            for role, record in self.records.items()
            for fact in record.said
            if not fact.data.get("held") and not fact.data.get("failed")
        ]
        return sorted(found, key=lambda each: each[1].sequence)


async def play_roles(stage: Stage, roles: Sequence[str], started: Fact, make: Callable[[], Any]) -> None:
    """Play the episode whose first role's rollout has started, until it is over. Its other roles' starts are nobody's work."""
    if int(started.data["member"]) % len(roles) != 0:
        return
    known = _Roles(stage, roles, started)
    episode = _Episode(stage, known, task_of(stage, started))
    try:
        await episode.play(make)
    finally:
        episode.end()


class _Episode:
    def __init__(self, stage: Stage, known: _Roles, task: Task) -> None:
        self._stage, self._known, self._task = stage, known, task
        self._thread = Thread(f"episode {task.rollout}")
        self._environment: Any = None
        self._broken = False

    async def play(self, make: Callable[[], Any]) -> None:
        known = self._known
        await known.read()
        if all(record.over for record in known.records.values()):
            return
        try:
            if any(record.failed for record in known.records.values()):
                raise _Stopped("another role of the episode failed")
            self._environment = await self._try("environment", make)
            settled = known.settled
            if not settled:
                await self._settle(known.names[0], None, "reset", lambda: self._environment.reset(self._task))
            elif "end" not in _then(settled[-1]):
                await self._restore(settled)
            while (then := _then(known.settled[-1])) is not None:
                await self._follow(*known.settled[-1], then)
                if "end" in then:
                    return
                action = await self._turn(then["role"])
                await self._settle(then["role"], action, "step", lambda action=action: self._environment.step(action))  # type: ignore[misc]
        except _Stopped as why:
            await self._fail(str(why))
        except IntakeError as refused:
            before = known.facts
            await known.read()
            if any(record.failed for record in known.records.values()):
                await self._fail("another role of the episode failed")
            elif known.facts == before:  # refused for what it says, and not since somebody else was faster
                await self._fail(failure("intake", refused))

    async def _turn(self, role: str) -> Action:
        """Wait for the turn of the role that has the word."""
        record = self._known.records[role]
        await record.until(lambda: record.over or record.awaits)
        if not record.awaits:
            if record.failed:
                raise _Stopped(f"the role {role} of the episode failed")
            raise _Stopped(f"the role {role} of the episode has reached a limit")
        return self._stage.action(record.turns[-1], role)

    async def _settle(self, role: str, action: Action | None, what: str, speak: Callable[[], Any]) -> None:
        """State what follows a turn, or the beginning, on the log of whose turn it was."""
        record, began, started = self._known.records[role], time.monotonic(), datetime.now(timezone.utc).isoformat()
        then = await self._try(what, lambda: _decided(self._known.names, role, action, speak()))
        state = {"then": then}
        if self._saves and "end" not in then:
            state["saved"] = await self._try("save", lambda: self._environment.save())
        text = json.dumps(state, allow_nan=False)
        if len(text.encode()) > MAX_STATE:
            raise _Stopped(f"the state has {len(text)} bytes, at most {MAX_STATE}")
        said: dict[str, Any] = {"state": text, "started_at": started, "duration_ms": 1000 * (time.monotonic() - began)}
        if "end" in then:
            said |= {"done": True, **then["end"][role]}
        elif then["role"] == role:
            said["messages"] = then["messages"]
        else:
            said["next"] = then["role"]
        await self._state(record, said)

    async def _follow(self, role: str, settled: Fact, then: Mapping[str, Any]) -> None:
        """State what a settled fact says of other roles, where it is not there yet."""
        for other, record in self._known.records.items():
            if other == role or not ("end" in then or then["role"] == other):
                continue
            await record.until(lambda record=record: record.started)  # type: ignore[misc]  # members of a group start one after the other
            if record.over or any(fact.sequence > settled.sequence for fact in record.said):
                continue
            said = {"done": True, **then["end"][other]} if "end" in then else {"messages": then["messages"]}
            await self._state(record, {"held": True, **said})

    async def _state(self, record: Record, said: Mapping[str, Any]) -> None:
        whole = {"turn": len(record.turns) - 1, "worker": self._stage.worker, **said}
        await self._stage.plane.intake.state(self._stage.run, "rollout.observed", record.rollout, whole)
        await record.read()

    async def _try(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return await self._thread.call(function, seconds=self._stage.seconds)
        except Exception as error:
            self._broken = isinstance(error, TimeoutError)
            raise _Stopped(failure(what, error)) from None

    async def _fail(self, why: str) -> None:
        """Fail all rollouts of the episode that are not over: a game that cannot go on has no result."""
        for record in self._known.records.values():
            await record.until(lambda record=record: record.over or (record.started and record.awaits))  # type: ignore[misc]
            if record.over or record.failed:
                continue
            try:
                await self._state(record, {"failed": why, "held": record.passed})
            except IntakeError:  # it is over since
                await record.read()

    @property
    def _saves(self) -> bool:
        return hasattr(self._environment, "save") and hasattr(self._environment, "load")

    async def _restore(self, settled: list[tuple[str, Fact]]) -> None:
        """Bring a new environment to where the record is: from its state, or by the recorded turns."""
        last = json.loads(settled[-1][1].data["state"])
        if self._saves:
            await self._try("load", lambda: self._environment.load(self._task, last["saved"]))
            return
        if getattr(self._environment, "restart", "replay") == "fail":
            raise _Stopped("its worker was lost, and the environment cannot go on elsewhere")
        for number, (role, fact) in enumerate(settled):
            turn = int(fact.data["turn"])
            action = None if number == 0 else self._stage.action(self._known.records[role].turns[turn], role)
            again = await self._try("replay", lambda action=action, role=role: self._again(role, action))  # type: ignore[misc]
            if again != _then((role, fact)):
                raise _Stopped(f"its worker was lost, and in another one the environment did not repeat itself at turn {turn} of {role}")

    def _again(self, role: str, action: Action | None) -> dict[str, Any]:
        said = self._environment.reset(self._task) if action is None else self._environment.step(action)
        return _decided(self._known.names, role, action, said)

    def end(self) -> None:
        """Close the environment, behind what it does now."""
        self._thread.end(getattr(self._environment, "close", None) if not self._broken else None)


def _then(settled: tuple[str, Fact]) -> dict[str, Any]:
    then: dict[str, Any] = json.loads(settled[1].data["state"])["then"]
    return then
