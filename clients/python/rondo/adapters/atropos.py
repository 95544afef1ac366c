"""Atropos: lists by group; the mask is the token where it was sampled, and -100 elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import without_images

__all__ = ["to_atropos"]

#: What a loss ignores.
IGNORED = -100


def to_atropos(batch: Batch, *, reference: str | None = None) -> list[dict[str, Any]]:
    """The groups of a batch, in their order, each with lists of its G samples.

    tokens, masks: integers [G][S]; scores: rewards [G]; advantages, inference_logprobs: floats [G][S] (1 where not
    sampled, as Atropos has it). Nothing is shifted or padded. env_id is None. overrides: {"temperature": float} [G], by which a trainer
    divides the logits; generation_params says the same where the group agrees, and is None where it does not.

    reference: a teacher of the batch, whose log-probabilities are ref_logprobs: floats [G][S].

    A trainer that computes advantages from scores counts a rollout that was split once for each sample: let it take advantages.
    """
    without_images(batch)
    mask = batch.loss_mask
    labels = np.where(mask.values, batch.tokens.values, IGNORED)
    logprobs = np.where(mask.values, batch.sampler_logprobs.values, np.float32(1))
    bounds = list(zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True))
    temperatures = batch["temperature"].tolist()
    said = None if reference is None else batch.teacher_logprobs(reference).values
    groups: list[dict[str, Any]] = []
    for number in range(int(batch.groups.max()) + 1 if len(batch) else 0):
        rows = np.flatnonzero(batch.groups == number)
        places = [bounds[i] for i in rows]
        used = [{"temperature": temperatures[i]} for i in rows]
        groups.append(
            {
                "tokens": [batch.tokens.values[a:b].tolist() for a, b in places],
                "masks": [labels[a:b].tolist() for a, b in places],
                "scores": batch.rewards[rows].tolist(),
                "advantages": [batch.advantages.values[a:b].tolist() for a, b in places],
                "inference_logprobs": [logprobs[a:b].tolist() for a, b in places],
                "generation_params": used[0] if all(u == used[0] for u in used) else None,
                "overrides": used,
                "env_id": None,
                **({} if said is None else {"ref_logprobs": [said[a:b].tolist() for a, b in places]}),
            }
        )
    return groups
