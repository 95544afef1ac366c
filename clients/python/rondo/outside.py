"""Bringing rollouts that ran elsewhere: their facts, in the order in which Rondo's own services state them."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from .errors import IntakeError
from .facts import subject
from .objects import Ref, put_named
from .plane import Plane
from .trajectory import Message, Trajectory, encode, figures

__all__ = ["bring", "open_group", "time_of"]

#: Begins the names of groups and rollouts of outsiders.
PREFIX = "x"

_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")

#: The parts of a duration in a run's configuration, such as 1h30m0s.
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")
_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


async def open_group(
    plane: Plane, run: str, group: str, task: str, size: int, policy_version: int, session: str, consent: bool
) -> tuple[str, bool]:
    """Open a group, unless it is open; its id, and whether it was not."""
    if not _NAME.fullmatch(group):
        raise ValueError(f"group {group!r}: use letters, digits and _, at most 48")
    opened: dict[str, Any] = {"task": task, "size": size, "policy_version": policy_version}
    if session or consent:
        opened |= {"session": session, "consent": consent}
    new = await _once(plane, run, "group.opened", PREFIX + group, opened, same=("task", "size"))
    return PREFIX + group, new


def time_of(config: Mapping[str, Any], deadline: float | None) -> float:
    """How many seconds a rollout has until its outcome: those of the caller, or all that the run gives it."""
    if deadline is None:
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(config["limits"]["timeout"]))
    if not 0 < deadline < math.inf:
        raise ValueError(f"deadline {deadline}: want a number of seconds above 0")
    return deadline


async def bring(plane: Plane, run: str, group: str, member: int, task: str, trajectory: Trajectory, seconds: float, new: bool) -> str:
    """Hand in a member of an open group, which has so many seconds until its outcome; the rollout's id.

    What was handed in before is not handed in again. new: nothing of the group was before.
    """
    rollout = f"{group}-{member}"
    if not new:  # one look at the rollout's chain in place of one for each fact
        new = await plane.log.last(run, subject(run, "rollout.>", rollout)) is None
    started = {
        "group": group,
        "member": member,
        "task": task,
        "policy_version": trajectory.policy_version,
        "seed": 0,
        "deadline": (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat(),
    }
    data = b"" if trajectory.failure else await _encode(run, group, rollout, task, trajectory)
    await _once(plane, run, "rollout.started", rollout, started, same=("policy_version",), new=new)
    if trajectory.failure:
        failed = {"stage": "harness", "class": trajectory.failure_class, "message": trajectory.failure[:1000]}
        await _once(plane, run, "rollout.failed", rollout, failed, new=new)
        return rollout
    ref = await asyncio.to_thread(put_named, plane.objects, f"runs/{run}/trajectories/{rollout}", "arrow", data)
    told = figures(trajectory)
    finished = {"task": task, "trajectory": ref.told(), **told}
    await _once(plane, run, "rollout.finished", rollout, finished, same=("trajectory",), new=new)
    if trajectory.reward is not None:
        await _once(plane, run, "rollout.scored", rollout, _scored(trajectory, ref, told["text_only"]), same=("reward",), new=new)
    return rollout


async def _encode(run: str, group: str, rollout: str, task: str, trajectory: Trajectory) -> bytes:
    """The trajectory's file. A small one is made at once: to hand it to a thread and back takes longer."""
    if _is_small(trajectory):
        return encode(run, group, rollout, task, trajectory)
    return await asyncio.to_thread(encode, run, group, rollout, task, trajectory)


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
