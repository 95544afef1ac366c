"""verl: prompts padded on the left, responses on the right, as its agent loops give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import cut, left_padded

__all__ = ["to_verl"]


def to_verl(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """Tensors of a DataProto for B samples, P and R the longest prompt and response.

    prompts int64 [B, P]; responses, response_mask (1: sampled, 0: tool or padding) int64 [B, R]; input_ids, attention_mask, position_ids
    int64 [B, P + R]; rollout_log_probs, advantages, returns float32 [B, R]; rm_scores float32 [B, R]: the reward, on the last
    token of the response. uid (non-tensor): the group, object [B].
    """
    before, after = cut(batch, batch.tokens)
    prompts, responses, lengths = left_padded(before, pad_id), after.padded(pad_id), after.lengths
    response_present = np.arange(responses.shape[1]) < lengths[:, None]
    prompt_present = np.arange(prompts.shape[1]) >= prompts.shape[1] - batch["prompt_length"][:, None]
    attention = np.concatenate([prompt_present, response_present], 1).astype(np.int64)
    scores = np.zeros(responses.shape, np.float32)
    rows = np.flatnonzero(lengths)
    scores[rows, lengths[rows] - 1] = batch.rewards[rows]
    advantages = cut(batch, batch.advantages)[1].padded()
    return {
        "prompts": prompts.astype(np.int64),
        "responses": responses.astype(np.int64),
        "response_mask": cut(batch, batch.loss_mask)[1].padded().astype(np.int64),
        "input_ids": np.concatenate([prompts, responses], 1).astype(np.int64),
        "attention_mask": attention,
        "position_ids": np.maximum(np.cumsum(attention, 1) - 1, 0),
        "rollout_log_probs": cut(batch, batch.sampler_logprobs)[1].padded(),
        "rm_scores": scores,
        "advantages": advantages,
        "returns": advantages.copy(),
        "uid": batch["group_id"],
    }
