"""A teacher outside: reads what a rollout sampled, and states how likely its model finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from . import hints
from .intake import Answer
from .objects import put_blob
from .plane import Plane
from .tokens import LEAST_SCORED, logprobs_of

__all__ = ["Score", "packed", "packed_spans", "teach"]

#: Natural log-probabilities of a sample's tokens: [S], or [S - 1] without the first, which has nothing before it.
Score = Callable[[npt.NDArray[np.int32]], Any]


def values_of(number: int, ids: npt.NDArray[np.int32], score: Score) -> npt.NDArray[np.float32]:
    """What `score` says of one sample. ValueError when it is no log-probabilities."""
    given = np.asarray(score(ids) if len(ids) else [])
    if given.dtype.kind not in "fiuO" or any(isinstance(v, str | bytes | bool) for v in given.flat if given.dtype.kind == "O"):
        raise ValueError(f"sample {number}: log-probabilities must be numbers, got {given.dtype}")  # numpy would read a text as one
    values = given.astype(np.float64).reshape(-1)
    if len(ids) and len(values) == len(ids) - 1:
        values = np.concatenate([[0.0], values])
    if len(values) != len(ids):
        raise ValueError(f"sample {number}: {len(values)} log-probabilities for {len(ids)} tokens")
    values[:1] = 0  # nothing is before the first token
    try:
        return logprobs_of(values, least=LEAST_SCORED).astype("<f4")
    except ValueError as error:
        raise ValueError(f"sample {number}: {error}") from None


def packed(tokens: list[npt.NDArray[np.int32]], score: Score) -> bytes:
    """What `score` says of each sample, as the object that rollout.teacher_scored names."""
    return b"".join(values_of(number, ids, score).tobytes() for number, ids in enumerate(tokens))


def packed_spans(prompts: list[tuple[npt.NDArray[np.int32], int]], score: Score) -> bytes:
    """What `score` says of the last tokens of each prompt, which are those of a hint's span."""
    return b"".join(values_of(number, ids, score)[len(ids) - length :].tobytes() for number, (ids, length) in enumerate(prompts))


async def teach(
    plane: Plane,
    run: str,
    rollout: str,
    teacher: str,
    hinter: str,
    score: Score,
    tokenize: hints.Tokenize | None,
    model: str,
    version: str,
) -> Answer:
    """Score a rollout, or what its hints are about, and state what came of it. hinter: whose hints it takes; "" for whole rollouts."""
    trajectory, rows = await hints.trajectory(plane, run, rollout)
    found = hints.samples(rows)
    if hinter:
        told = await hints.stated(plane, run, rollout, hinter)
        data = await asyncio.to_thread(lambda: packed_spans(hints.prompts(found, told, tokenize), score))
    else:
        data = await asyncio.to_thread(packed, [sample.tokens for sample in found], score)
    ref = await asyncio.to_thread(put_blob, plane.objects, data)
    said: dict[str, Any] = {"teacher": teacher, "trajectory": trajectory.sha256, "tokens": len(data) // 4, "logprobs": ref.told()}
    said |= {name: text for name, text in (("model", model), ("version", version)) if text}
    return await plane.intake.state(run, "rollout.teacher_scored", rollout, said)
