"""AReaL: whole sequences padded on the right, with the version and the turn of every token.

Its actor takes two kinds of batches. `ppo_update` trains on what `to_areal` gives: there, place t is about token t + 1, as its model's
log-probabilities are. `compute_advantages` shifts by itself and writes advantages anew from rewards; who wants that takes
`to_areal_rollouts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from ..columns import Ragged
from .layout import shifted, tensors, whole_rollouts, without_images

__all__ = ["to_areal", "to_areal_rollouts"]


def to_areal(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """torch tensors for `ppo_update`, by name, for B samples, S tokens wide. Do not call `compute_advantages` on them.

    input_ids int32, attention_mask bool [B, S]. Place t of these speaks of token t + 1, and the last place of none: loss_mask (1: sampled),
    logprobs, prox_logp (the same), advantages, returns float32, versions and turn_ids (-1 where not sampled) int32 [B, S]. rewards,
    float32 [B], and kl_rewards (0) and tot_rewards (the advantages), float32 [B, S], are only logged.
    """
    without_images(batch)
    ids = batch.tokens.padded(pad_id)

    def of_next(column: Ragged, fill: float = 0) -> Any:
        return shifted(column).padded(fill, ids.shape[1])

    advantages, logprobs = of_next(batch.advantages), of_next(batch.sampler_logprobs)
    return tensors(
        {
            "input_ids": ids,
            "attention_mask": np.arange(ids.shape[1]) < batch.lengths[:, None],
            "loss_mask": of_next(batch.loss_mask).astype(np.float32),
            "logprobs": logprobs,
            "prox_logp": logprobs,
            "versions": of_next(batch.token_versions, -1).astype(np.int32),
            "turn_ids": of_next(batch.token_turns, -1),
            "advantages": advantages,
            "returns": advantages,
            "rewards": batch.rewards,
            "kl_rewards": np.zeros_like(advantages),
            "tot_rewards": advantages,
        }
    )


def to_areal_rollouts(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """torch tensors as a rollout workflow gives them, for B samples, S tokens wide, for a trainer that computes advantages itself.

    Nothing is shifted: input_ids, loss_mask (1: sampled), versions and turn_ids (-1 where not sampled) int32 [B, S]; logprobs (0 where not
    sampled) float32 [B, S]; attention_mask bool [B, S]; rewards float32 [B]. ValueError where a rollout has several samples.
    """
    without_images(batch)
    whole_rollouts(batch, "AReaL")
    ids = batch.tokens.padded(pad_id)
    return tensors(
        {
            "input_ids": ids,
            "loss_mask": batch.loss_mask.padded().astype(np.int32),
            "logprobs": batch.sampler_logprobs.padded(),
            "versions": batch.token_versions.padded(-1).astype(np.int32),
            "turn_ids": batch.token_turns.padded(-1),
            "attention_mask": np.arange(ids.shape[1]) < batch.lengths[:, None],
            "rewards": batch.rewards,
        }
    )
