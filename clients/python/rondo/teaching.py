"""A teacher outside: reads what a rollout sampled, and states how likely its model finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import Damaged, NotFound
from .facts import subject
from .intake import Answer
from .objects import Ref, fetch, put_blob
from .plane import Plane

__all__ = ["Score", "packed", "samples", "teach"]

#: Natural log-probabilities of a sample's tokens: [S], or [S - 1] without the first, which has nothing before it.
Score = Callable[[npt.NDArray[np.int32]], Any]


def samples(file: bytes) -> list[npt.NDArray[np.int32]]:
    """The token ids of a trajectory file's samples, in their order in batches."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(file)).read_all()
        segments, tokens = table.column("segment").to_pylist(), table.column("token_ids").to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, KeyError, ValueError) as error:
        raise Damaged(f"not a trajectory file: {error}") from None
    found: dict[int, list[int]] = {}
    for segment, ids in zip(segments, tokens, strict=True):
        found.setdefault(segment, []).extend(ids)
    return [np.array(ids, np.int32) for ids in found.values()]


def packed(tokens: list[npt.NDArray[np.int32]], score: Score) -> bytes:
    """What `score` says of each sample, as the object that rollout.teacher_scored names. ValueError when it is no log-probabilities."""
    parts = []
    for number, ids in enumerate(tokens):
        values = np.asarray(score(ids) if len(ids) else [], np.float32).reshape(-1)
        if len(ids) and len(values) == len(ids) - 1:
            values = np.concatenate([[np.float32(0)], values])
        if len(values) != len(ids):
            raise ValueError(f"sample {number}: {len(values)} log-probabilities for {len(ids)} tokens")
        values = values.astype("<f4")
        values[:1] = 0  # nothing is before the first token
        if not np.all(np.isfinite(values)) or np.any(values > 0):
            raise ValueError(f"sample {number}: a log-probability is a finite number of at most 0")
        parts.append(values.tobytes())
    return b"".join(parts)


async def teach(plane: Plane, run: str, rollout: str, teacher: str, score: Score, model: str, version: str) -> Answer:
    """Score a rollout and state what came of it."""
    scored = await plane.log.last(run, subject(run, "rollout.scored", rollout))
    if scored is None:
        raise NotFound(f"rollout {rollout} of run {run} has no reward yet")
    trajectory = Ref.parse(scored.data["trajectory"])
    tokens = samples(await asyncio.to_thread(fetch, plane.objects, trajectory))
    data = await asyncio.to_thread(packed, tokens, score)
    ref = await asyncio.to_thread(put_blob, plane.objects, data)
    said: dict[str, Any] = {"teacher": teacher, "trajectory": trajectory.sha256, "tokens": len(data) // 4, "logprobs": ref.told()}
    said |= {name: text for name, text in (("model", model), ("version", version)) if text}
    return await plane.intake.state(run, "rollout.teacher_scored", rollout, said)
