"""SkyRL: whole sequences padded on the left, and what is said of responses aligned with their end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import cut, left_padded

__all__ = ["to_skyrl", "to_skyrl_generator"]


def to_skyrl(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """A training input for B samples, S and R the longest sequence and response; response column j is sequence column S - R + j.

    sequences, attention_mask int64 [B, S]; response_mask (1: response) int64 [B, R]; loss_mask (1: sampled), rollout_logprobs, advantages,
    returns float32 [B, R]; rewards float32 [B, R]: the reward, on the last token.
    """
    _, masks = cut(batch, batch.loss_mask)
    width = int(masks.lengths.max()) if len(batch) else 0
    sequences = left_padded(batch.tokens, pad_id)
    advantages = left_padded(cut(batch, batch.advantages)[1])
    rewards = np.zeros((len(batch), width), np.float32)
    if width:
        rewards[:, -1] = batch.rewards * (masks.lengths > 0)
    return {
        "sequences": sequences.astype(np.int64),
        "attention_mask": (np.arange(sequences.shape[1]) >= sequences.shape[1] - batch.lengths[:, None]).astype(np.int64),
        "response_mask": (np.arange(width) >= width - masks.lengths[:, None]).astype(np.int64),
        "loss_mask": left_padded(masks).astype(np.float32),
        "rollout_logprobs": left_padded(cut(batch, batch.sampler_logprobs)[1]),
        "rewards": rewards,
        "advantages": advantages,
        "returns": advantages.copy(),
    }


def to_skyrl_generator(batch: Batch) -> dict[str, Any]:
    """A generator's output: lists with one entry for each of B samples.

    prompt_token_ids, response_ids, loss_masks (integers) and rollout_logprobs of the response; rewards; stop_reasons; trajectory_ids
    {instance_id: group, repetition_id: member}; is_last_step: no later sample of the same rollout follows.
    """
    prompts, responses = cut(batch, batch.tokens)
    members = [int(rollout.rsplit("-", 1)[1]) for rollout in batch["rollout_id"]]
    return {
        "prompt_token_ids": [row.tolist() for row in prompts.rows()],
        "response_ids": [row.tolist() for row in responses.rows()],
        "rewards": batch.rewards.tolist(),
        "loss_masks": [row.astype(np.int64).tolist() for row in cut(batch, batch.loss_mask)[1].rows()],
        "stop_reasons": batch["stop_reason"].tolist(),
        "rollout_logprobs": [row.tolist() for row in cut(batch, batch.sampler_logprobs)[1].rows()],
        "trajectory_ids": [{"instance_id": g, "repetition_id": m} for g, m in zip(batch["group_id"].tolist(), members, strict=True)],
        "is_last_step": (batch["sample_index"] + 1 == batch["samples_in_rollout"]).tolist(),
    }
