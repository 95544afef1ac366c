"""TRL: the inputs of GRPOTrainer's loss, and samples as a rollout worker queues them for its asynchronous trainer.

The asynchronous trainer's batches are made by TRL's own collator, which packs samples since TRL 1.7 and folds them into
prefix trees since 1.16: give it samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import cut, left_padded, one_advantage, tensors, without_images

__all__ = ["to_trl", "to_trl_samples"]


def to_trl(batch: Batch, *, pad_id: int = 0, reference: str | None = None) -> dict[str, Any]:
    """torch tensors for `GRPOTrainer.compute_loss`, for B samples, P and C the longest prompt and completion.

    prompt_ids (padded on the left), prompt_mask int64 [B, P]; completion_ids (padded on the right), completion_mask (1: not padding),
    tool_mask (1: sampled) int64 [B, C]; advantages, old_per_token_logps, sampling_per_token_logps float32 [B, C];
    num_items_in_batch int64: the sampled tokens of the whole step over all ranks.

    reference: a teacher of the batch, whose log-probabilities are ref_per_token_logps float32 [B, C].
    """
    without_images(batch)
    before, after = cut(batch, batch.tokens)
    prompts, completions = left_padded(before, pad_id), after.padded(pad_id)
    logprobs = cut(batch, batch.sampler_logprobs)[1].padded()
    total = batch.metadata.get("batch_sampled_tokens", batch.loss_mask.values.sum())
    said = {} if reference is None else {"ref_per_token_logps": cut(batch, batch.teacher_logprobs(reference))[1].padded()}
    return tensors(
        {
            **said,
            "prompt_ids": prompts.astype(np.int64),
            "prompt_mask": (np.arange(prompts.shape[1]) >= prompts.shape[1] - before.lengths[:, None]).astype(np.int64),
            "completion_ids": completions.astype(np.int64),
            "completion_mask": (np.arange(completions.shape[1]) < after.lengths[:, None]).astype(np.int64),
            "tool_mask": cut(batch, batch.loss_mask)[1].padded().astype(np.int64),
            "advantages": cut(batch, batch.advantages)[1].padded(),
            "old_per_token_logps": logprobs,
            "sampling_per_token_logps": logprobs,
            "num_items_in_batch": np.array(int(total), np.int64),
        }
    )


def to_trl_samples(batch: Batch) -> list[dict[str, Any]]:
    """The fields of a RolloutSample for each sample of S tokens, for a worker's rollout_buffer.

    input_ids, completion_mask (1: sampled) int64 [S] and old_log_probs (0 where not sampled) float32 [S] are numpy arrays, as TRL 1.16
    wants them; its older collators take them too. prompt and completion are empty: TRL only prints them, and the text is in the
    trajectory, not in the batch. advantage: one number, ValueError where the tokens of a sample have different ones. model_version is the
    version at dispatch, group_id the group's number in the batch.
    """
    without_images(batch)
    advantages, versions = one_advantage(batch).tolist(), batch["dispatch_version"].tolist()
    rows = zip(batch.tokens.rows(), batch.loss_mask.rows(), batch.sampler_logprobs.rows(), strict=True)
    return [
        {
            "prompt": [],
            "completion": [],
            "input_ids": ids.astype(np.int64),
            "completion_mask": mask.astype(np.int64),
            "old_log_probs": logprobs.copy(),
            "advantage": advantages[i],
            "model_version": versions[i],
            "group_id": int(batch.groups[i]),
            "metrics": {"reward": float(batch.rewards[i])},
        }
        for i, (ids, mask, logprobs) in enumerate(rows)
    ]
