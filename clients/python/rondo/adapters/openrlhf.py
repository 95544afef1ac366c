"""OpenRLHF: sequences padded on the right; action j is the choice of token j + 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import cut, shifted, tensors, without_images

__all__ = ["to_openrlhf"]


def to_openrlhf(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """torch tensors of an Experience, ready for the replay buffer, for B samples, T tokens wide, with A = T - 1 actions.

    sequences, attention_mask int64 [B, T]; action_mask bool, rollout_log_probs, advantages, returns float32 [B, A]; rewards, scores,
    response_length, total_length, truncated float32 [B]; index: numbers of the samples. response_length counts from the first sampled token
    to the last one. Do not give it to the experience maker, which computes advantages again from rewards.
    """
    without_images(batch)
    ids = batch.tokens.padded(pad_id)
    actions = max(ids.shape[1] - 1, 0)
    mask = shifted(batch.loss_mask).padded(False, actions)
    advantages = shifted(batch.advantages).padded(0, actions)
    sampled = cut(batch, batch.loss_mask)[1].padded(False)
    width = sampled.shape[1]
    last = np.where(sampled.any(1), width - np.argmax(sampled[:, ::-1], 1), 0) if width else np.zeros(len(batch))
    return tensors(
        {
            "sequences": ids.astype(np.int64),
            "attention_mask": (np.arange(ids.shape[1]) < batch.lengths[:, None]).astype(np.int64),
            "action_mask": mask,
            "rollout_log_probs": shifted(batch.sampler_logprobs).padded(0, actions),
            "advantages": advantages,
            "returns": advantages.copy(),
            "rewards": np.array(batch.rewards),
            "scores": np.array(batch.rewards),
            "response_length": last.astype(np.float32),
            "truncated": batch["truncated"].astype(np.float32),
            "total_length": batch.lengths.astype(np.float32),
            "index": list(range(len(batch))),
        }
    )
