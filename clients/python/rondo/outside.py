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
from .trajectory import Trajectory, encode, figures

__all__ = ["bring", "open_group", "time_of"]

#: Begins the names of groups and rollouts of outsiders.
PREFIX = "x"

_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")

#: The parts of a duration in a run's configuration, such as 1h30m0s.
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")
_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


async def open_group(plane: Plane, run: str, group: str, task: str, size: int, policy_version: int, session: str, consent: bool) -> str:
    """Open a group, unless it is open; its id."""
    if not _NAME.fullmatch(group):
        raise ValueError(f"group {group!r}: use letters, digits and _, at most 48")
    opened: dict[str, Any] = {"task": task, "size": size, "policy_version": policy_version}
    if session or consent:
        opened |= {"session": session, "consent": consent}
    await _once(plane, run, "group.opened", PREFIX + group, opened, same=("task", "size"))
    return PREFIX + group


def time_of(config: Mapping[str, Any], deadline: float | None) -> float:
    """How many seconds a rollout has until its outcome: those of the caller, or all that the run gives it."""
    if deadline is None:
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(config["limits"]["timeout"]))
    if not 0 < deadline < math.inf:
        raise ValueError(f"deadline {deadline}: want a number of seconds above 0")
    return deadline


async def bring(plane: Plane, run: str, group: str, member: int, task: str, trajectory: Trajectory, seconds: float) -> str:
    """Hand in a member of an open group, which has so many seconds until its outcome; the rollout's id.

    What was handed in before is not handed in again.
    """
    rollout = f"{group}-{member}"
    started = {
        "group": group,
        "member": member,
        "task": task,
        "policy_version": trajectory.policy_version,
        "seed": 0,
        "deadline": (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat(),
    }
    data = b"" if trajectory.failure else await asyncio.to_thread(encode, run, group, rollout, task, trajectory)
    await _once(plane, run, "rollout.started", rollout, started, same=("policy_version",))
    if trajectory.failure:
        failed = {"stage": "harness", "class": trajectory.failure_class, "message": trajectory.failure[:1000]}
        await _once(plane, run, "rollout.failed", rollout, failed)
        return rollout
    ref = await asyncio.to_thread(put_named, plane.objects, f"runs/{run}/trajectories/{rollout}", "arrow", data)
    await _once(plane, run, "rollout.finished", rollout, _finished(task, trajectory, ref), same=("trajectory",))
    if trajectory.reward is not None:
        await _once(plane, run, "rollout.scored", rollout, _scored(trajectory, ref), same=("reward",))
    return rollout


def _finished(task: str, trajectory: Trajectory, ref: Ref) -> dict[str, Any]:
    return {"task": task, "trajectory": ref.told(), **figures(trajectory)}


def _scored(trajectory: Trajectory, ref: Ref) -> dict[str, Any]:
    return {
        "reward": trajectory.reward,
        "components": dict(trajectory.components),
        "exit_code": 0,
        "task_digest": "",
        "duration_ms": 0,
        "trajectory": ref.told(),
        "text_only": figures(trajectory)["text_only"],
    }


async def _once(plane: Plane, run: str, type: str, entity: str, data: Mapping[str, Any], same: Sequence[str] = ()) -> None:
    """State a fact that happens once. One that is on the log must say the same in the fields that matter."""
    known = await plane.log.last(run, subject(run, type, entity))
    if known is None:
        await plane.intake.state(run, type, entity, data)
        return
    for name in same:
        if known.data.get(name) != data[name]:
            raise IntakeError(f"{type} of {entity} was stated before with {name} {known.data.get(name)}, not {data[name]}")
