"""AReaL: whole sequences padded on the right, with the version and the turn of every token; nothing is shifted."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch

__all__ = ["to_areal"]


def to_areal(batch: Batch, *, pad_id: int = 0) -> dict[str, Any]:
    """Tensors by name for B samples, S tokens wide.

    input_ids, loss_mask (1: sampled), versions and turn_ids (-1 where not sampled) int32 [B, S]; logprobs (0 where not sampled) and
    advantages float32 [B, S]; attention_mask bool [B, S]; rewards float32 [B].
    """
    ids = batch.tokens.padded(pad_id)
    return {
        "input_ids": ids,
        "loss_mask": batch.loss_mask.padded().astype(np.int32),
        "logprobs": batch.sampler_logprobs.padded(),
        "versions": batch.token_versions.padded(-1).astype(np.int32),
        "turn_ids": batch.token_turns.padded(-1),
        "attention_mask": np.arange(ids.shape[1]) < batch.lengths[:, None],
        "rewards": np.array(batch.rewards),
        "advantages": batch.advantages.padded(),
    }
