"""Bringing rollouts that ran elsewhere: their facts, in the order in which Rondo's own services state them."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from .errors import IntakeError
from .facts import subject
from .intake import Stated
from .objects import Packer, Ref, put_all_named, put_named
from .plane import Plane
from .trajectory import Message, Trajectory, encode

__all__ = ["Group", "hand_in", "time_of"]

#: Begins the names of groups and rollouts of outsiders.
PREFIX = "x"

#: Bytes of trajectories up to which rollouts are one submission: the intake reads them all before it answers.
MAX_TOGETHER = 64 << 20

_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")

#: The parts of a duration in a run's configuration, such as 1h30m0s.
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")
_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Group:
    """A group of outsiders as it is opened; its name is the caller's."""

    name: str
    task: str
    size: int
    policy_version: int = 0
    session: str = ""
    consent: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"group {self.name!r}: use letters, digits and _, at most 48")

    @property
    def id(self) -> str:
        """Its name on the log."""
        return PREFIX + self.name

    def member(self, number: int) -> str:
        """The id of a rollout."""
        return f"{self.id}-{number}"

    def opened(self) -> dict[str, Any]:
        """What the fact group.opened says."""
        told: dict[str, Any] = {"task": self.task, "size": self.size, "policy_version": self.policy_version}
        if self.session or self.consent:
            told |= {"session": self.session, "consent": self.consent}
        return told


def time_of(config: Mapping[str, Any], deadline: float | None) -> float:
    """How many seconds a rollout has until its outcome: those of the caller, or all that the run gives it."""
    if deadline is None:
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(config["limits"]["timeout"]))
    if not 0 < deadline < math.inf:
        raise ValueError(f"deadline {deadline}: want a number of seconds above 0")
    return deadline


async def hand_in(plane: Plane, run: str, group: Group, members: Mapping[int, Trajectory], seconds: float) -> list[str]:
    """Hand in members of a group, by their numbers, which have so many seconds until their outcome; the rollouts' ids.

    They are one submission, of which the intake takes all or nothing. Where it refuses that, each fact is stated by itself: what is good is
    handed in then, what was handed in before is not handed in again, and the error says what is wrong.
    """
    rollouts = await _store(plane, run, group, members, seconds)
    if sum(r.size for r in rollouts) <= MAX_TOGETHER:
        facts: list[Stated] = [("group.opened", group.id, group.opened())]
        facts += [(type, r.id, data) for r in rollouts for type, data in r.facts]
        try:
            await plane.intake.state_together(run, group.id, facts)
            return [r.id for r in rollouts]
        except IntakeError:
            pass
    new = await _once(plane, run, "group.opened", group.id, group.opened(), same=("task", "size"))
    await asyncio.gather(*(_one_by_one(plane, run, r, new) for r in rollouts))
    return [r.id for r in rollouts]


@dataclass(frozen=True)
class _Rollout:
    """A rollout whose file is in the store: its facts in their order, and the bytes of its file."""

    id: str
    facts: list[tuple[str, dict[str, Any]]]
    size: int = 0


async def _store(plane: Plane, run: str, group: Group, members: Mapping[int, Trajectory], seconds: float) -> list[_Rollout]:
    """Put the files of rollouts into the store, and make their facts."""
    made = await asyncio.gather(*(_encode(run, group, i, t) for i, t in members.items() if not t.failure))
    objects = [(f"runs/{run}/trajectories/{id}", data) for id, data, _ in made]
    if isinstance(plane.objects, Packer):
        refs = await asyncio.to_thread(put_all_named, plane.objects, "arrow", objects)
    else:
        refs = await asyncio.gather(*(asyncio.to_thread(put_named, plane.objects, prefix, "arrow", data) for prefix, data in objects))
    files = {id: (ref, told) for (id, _, told), ref in zip(made, refs, strict=True)}
    deadline = (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat()
    return [_rollout(group, i, t, deadline, files.get(group.member(i))) for i, t in members.items()]


async def _encode(run: str, group: Group, member: int, trajectory: Trajectory) -> tuple[str, bytes, dict[str, Any]]:
    """A rollout's id, its file, and what rollout.finished says of it."""
    id = group.member(member)
    if _is_small(trajectory):  # to hand it to a thread and back takes longer
        return id, *encode(run, group.id, id, group.task, trajectory)
    return id, *await asyncio.to_thread(encode, run, group.id, id, group.task, trajectory)


def _rollout(group: Group, member: int, trajectory: Trajectory, deadline: str, file: tuple[Ref, dict[str, Any]] | None) -> _Rollout:
    """The facts of a rollout; one that failed has no file."""
    id = group.member(member)
    started = {
        "group": group.id,
        "member": member,
        "task": group.task,
        "policy_version": trajectory.policy_version,
        "seed": 0,
        "deadline": deadline,
    }
    if file is None:
        failed = {"stage": "harness", "class": trajectory.failure_class, "message": trajectory.failure[:1000]}
        return _Rollout(id, [("rollout.started", started), ("rollout.failed", failed)])
    ref, told = file
    facts = [("rollout.started", started), ("rollout.finished", {"task": group.task, "trajectory": ref.told(), **told})]
    if trajectory.reward is not None:
        facts.append(("rollout.scored", _scored(trajectory, ref, told["text_only"])))
    return _Rollout(id, facts, ref.size)


#: What must be the same in a fact that was stated before.
_SAME = {"rollout.started": ("policy_version",), "rollout.finished": ("trajectory",), "rollout.scored": ("reward",)}


async def _one_by_one(plane: Plane, run: str, rollout: _Rollout, new: bool) -> None:
    """State the facts of a member of an open group. new: nothing of the group was there before."""
    if not new:  # one look at the rollout's chain in place of one for each fact
        new = await plane.log.last(run, subject(run, "rollout.>", rollout.id)) is None
    for type, data in rollout.facts:
        await _once(plane, run, type, rollout.id, data, same=_SAME.get(type, ()), new=new)


def _is_small(trajectory: Trajectory) -> bool:
    messages = (m if isinstance(m, Message) else Message(**m) for m in trajectory.messages)
    return len(trajectory.messages) <= 64 and sum(len(m.token_ids) + len(m.content) for m in messages) <= 1 << 13


def _scored(trajectory: Trajectory, ref: Ref, text_only: bool) -> dict[str, Any]:
    return {
        "reward": trajectory.reward,
        "components": dict(trajectory.components),
        "exit_code": 0,
        "task_digest": "",
        "duration_ms": 0,
        "trajectory": ref.told(),
        "text_only": text_only,
    }


async def _once(
    plane: Plane, run: str, type: str, entity: str, data: Mapping[str, Any], same: Sequence[str] = (), new: bool = False
) -> bool:
    """State a fact that happens once; False if it is on the log. Then it must say the same in the fields that matter.

    new: it is hardly there, so it is looked for only when the intake refuses it.
    """
    refused: IntakeError | None = None
    if new:
        try:
            await plane.intake.state(run, type, entity, data)
            return True
        except IntakeError as error:
            refused = error
    known = await plane.log.last(run, subject(run, type, entity))
    if known is None:
        if refused:
            raise refused
        await plane.intake.state(run, type, entity, data)
        return True
    for name in same:
        if known.data.get(name) != data[name]:
            raise IntakeError(f"{type} of {entity} was stated before with {name} {known.data.get(name)}, not {data[name]}")
    return False
