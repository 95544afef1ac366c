"""TRL's asynchronous GRPO: samples as its rollout workers queue them, and collated as its trainer takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import one_advantage

__all__ = ["to_trl", "to_trl_samples"]


def to_trl(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """The collated batch of B samples, S tokens wide, padded on the right; nothing is shifted.

    input_ids, attention_mask, position_ids int64 [B, S]; completion_mask (1: sampled), old_log_probs (0 where masked) float32
    [B, S]; advantages float32 [B]; global_n_tokens float32 [B]: the sampled tokens of the whole step over all ranks, repeated.
    """
    ids = batch.tokens.padded(pad_id)
    places = np.arange(ids.shape[1])
    present = places < batch.lengths[:, None]
    total = batch.metadata.get("batch_sampled_tokens", batch.loss_mask.values.sum())
    return {
        "input_ids": ids.astype(np.int64),
        "attention_mask": present.astype(np.int64),
        "position_ids": np.where(present, places, 0),
        "completion_mask": batch.loss_mask.padded().astype(np.float32),
        "old_log_probs": batch.sampler_logprobs.padded(),
        "advantages": one_advantage(batch),
        "global_n_tokens": np.full(len(batch), total, np.float32),
    }


def to_trl_samples(batch: Batch) -> list[dict[str, Any]]:
    """The fields of a RolloutSample for each sample, for a worker's rollout_buffer.

    prompt and completion are empty: TRL only prints them, and the text is in the trajectory, not in the batch. model_version is the
    version at dispatch, group_id the group's number in the batch.
    """
    advantages, versions = one_advantage(batch).tolist(), batch["dispatch_version"].tolist()
    rows = zip(batch.tokens.rows(), batch.loss_mask.rows(), batch.sampler_logprobs.rows(), strict=True)
    return [
        {
            "prompt": [],
            "completion": [],
            "input_ids": ids.tolist(),
            "completion_mask": mask.astype(np.int64).tolist(),
            "old_log_probs": logprobs.tolist(),
            "advantage": advantages[i],
            "model_version": versions[i],
            "group_id": int(batch.groups[i]),
            "metrics": {"reward": float(batch.rewards[i])},
        }
        for i, (ids, mask, logprobs) in enumerate(rows)
    ]
