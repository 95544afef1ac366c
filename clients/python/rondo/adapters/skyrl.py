"""SkyRL: whole sequences padded on the left, and what is said of responses aligned with their end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..batch import Batch
from .layout import cut, left_padded, tensors, whole_experts, whole_rollouts, without_images

__all__ = ["TrajectoryID", "to_skyrl", "to_skyrl_generator"]


@dataclass(frozen=True)
class TrajectoryID:
    """What SkyRL reads of its class of this name."""

    #: The group.
    instance_id: str
    #: The member of the group, from 0.
    repetition_id: int

    def to_string(self) -> str:
        """Both in one word."""
        return f"{self.instance_id}_{self.repetition_id}"


def to_skyrl(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """torch tensors of a TrainingInputBatch, advantages included.

    B is the number of samples, S the length of the longest sequence and R that of the longest response. Column j of a response is column
    S - R + j of its sequence.

    sequences, attention_mask int64 [B, S]; response_mask (1: response) int64 [B, R]; loss_mask (1: sampled), rollout_logprobs, advantages,
    returns float32 [B, R]; rewards float32 [B, R]: the reward, on the last token.
    """
    without_images(batch)
    _, masks = cut(batch, batch.loss_mask)
    width = int(masks.lengths.max()) if len(batch) else 0
    sequences = left_padded(batch.tokens, pad_id)
    advantages = left_padded(cut(batch, batch.advantages)[1])
    rewards = np.zeros((len(batch), width), np.float32)
    if width:
        rewards[:, -1] = batch.rewards * (masks.lengths > 0)
    return tensors(
        {
            "sequences": sequences.astype(np.int64),
            "attention_mask": (np.arange(sequences.shape[1]) >= sequences.shape[1] - batch.lengths[:, None]).astype(np.int64),
            "response_mask": (np.arange(width) >= width - masks.lengths[:, None]).astype(np.int64),
            "loss_mask": left_padded(masks).astype(np.float32),
            "rollout_logprobs": left_padded(cut(batch, batch.sampler_logprobs)[1]),
            "rewards": rewards,
            "advantages": advantages,
            "returns": advantages.copy(),
        }
    )


def to_skyrl_generator(batch: Batch, *, step_wise: bool = False, experts: bool = False) -> dict[str, Any]:
    """A generator's output: lists with one entry for each of B samples. SkyRL's trainer computes advantages from its rewards.

    prompt_token_ids, response_ids, loss_masks (integers) and rollout_logprobs of the response; rewards; stop_reasons; trajectory_ids;
    is_last_step: no later sample of the same rollout follows.

    step_wise: SkyRL's generator.step_wise_trajectories is on, and it takes the reward of the last sample of each rollout. Where it is off,
    a rollout of several samples would count as often: ValueError. experts: rollout_expert_indices, an array [tokens, layers, top_k] for
    each sample, 0 for its last token. They are read from the object store.
    """
    without_images(batch)
    if not step_wise:
        whole_rollouts(batch, "SkyRL without step_wise_trajectories")
    prompts, responses = cut(batch, batch.tokens)
    routed = whole_experts(batch) if experts else None
    members = [int(rollout.rsplit("-", 1)[1]) for rollout in batch["rollout_id"]]
    return {
        "prompt_token_ids": [row.tolist() for row in prompts.rows()],
        "response_ids": [row.tolist() for row in responses.rows()],
        "rewards": batch.rewards.tolist(),
        "loss_masks": [row.astype(np.int64).tolist() for row in cut(batch, batch.loss_mask)[1].rows()],
        "stop_reasons": batch["stop_reason"].tolist(),
        "rollout_logprobs": [row.tolist() for row in cut(batch, batch.sampler_logprobs)[1].rows()],
        "trajectory_ids": [TrajectoryID(g, m) for g, m in zip(batch["group_id"].tolist(), members, strict=True)],
        "is_last_step": (batch["sample_index"] + 1 == batch["samples_in_rollout"]).tolist(),
        **({} if routed is None else {"rollout_expert_indices": [routed.row(i)[0] for i in range(len(batch))]}),
    }
