"""slime and miles: lists by sample, masks and log-probabilities of the response only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import cut, masked_rows, one_advantage, whole_experts, without_images

__all__ = ["to_slime"]


def to_slime(batch: Batch, *, teacher: str | None = None, experts: bool = False, masks: bool = False) -> dict[str, Any]:
    """The training data of a rollout step: lists with one entry for each of B samples.

    tokens: the whole sequence; response_lengths: tokens from the first sampled one on, R of a sample; loss_masks: R integers;
    rollout_log_probs: R floats; rewards: the advantage, which slime calls the normalised reward; raw_reward; truncated: 0 or 1;
    sample_indices; rollout_ids: the samples of one rollout share it; rollout_mask_sums: sampled tokens over all samples of the rollout.

    teacher: of the batch, whose log-probabilities of the response are teacher_log_probs, R floats.
    experts: rollout_routed_experts, an int32 array [tokens - 1, layers, top_k] for each sample. masks: what the sampler's bounds left,
    rollout_top_p_token_ids and, R + 1 for each sample, rollout_top_p_token_offsets, int32 arrays. Both are read from the object store.
    """
    without_images(batch)
    _, losses = cut(batch, batch.loss_mask)
    _, logprobs = cut(batch, batch.sampler_logprobs)
    told: dict[str, Any] = {
        "tokens": [row.tolist() for row in batch.tokens.rows()],
        "response_lengths": losses.lengths.tolist(),
        "rewards": one_advantage(batch).tolist(),
        "raw_reward": batch.rewards.tolist(),
        "truncated": batch["truncated"].astype(np.int64).tolist(),
        "sample_indices": list(range(len(batch))),
        "rollout_ids": batch.rollouts.tolist(),
        "loss_masks": [row.astype(np.int64).tolist() for row in losses.rows()],
        "rollout_mask_sums": batch.rollout_sampled.tolist(),
        "rollout_log_probs": [row.tolist() for row in logprobs.rows()],
    }
    if teacher is not None:
        told["teacher_log_probs"] = [row.tolist() for row in cut(batch, batch.teacher_logprobs(teacher))[1].rows()]
    if experts:
        routed = whole_experts(batch)
        told["rollout_routed_experts"] = [routed.row(i)[0][:-1].astype(np.int32) for i in range(len(batch))]
    if masks:
        left = masked_rows(batch)
        none = np.zeros(0, np.int32)
        told["rollout_top_p_token_ids"] = [np.concatenate([none, *rows]) for rows in left]
        told["rollout_top_p_token_offsets"] = [np.cumsum([0, *map(len, rows)], dtype=np.int32) for rows in left]
    return told
