"""Tinker: one datum for each sample. The input lacks the last token, and what is said of tokens lacks the first one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import without_images

__all__ = ["to_tinker"]


def to_tinker(batch: Batch) -> list[dict[str, Any]]:
    """The parts of a Datum for each sample of S tokens that has two tokens or more: `Datum(ModelInput.from_ints(…), loss_fn_inputs)`.

    model_input: S - 1 integers. loss_fn_inputs: target_tokens int64, logprobs, advantages float32, all [S - 1]; entry t is about the token
    that follows input t, and its advantage is 0 where the model did not sample that token. There is no mask among them: Tinker's losses
    (importance_sampling, ppo, cispo) know none. mask (1: sampled) float32 [S - 1] stands beside them.
    """
    without_images(batch)
    rows = zip(batch.tokens.rows(), batch.sampler_logprobs.rows(), batch.advantages.rows(), batch.loss_mask.rows(), strict=True)
    return [
        {
            "model_input": ids[:-1].tolist(),
            "loss_fn_inputs": {
                "target_tokens": ids[1:].astype(np.int64),
                "logprobs": logprobs[1:].copy(),
                "advantages": advantages[1:].copy(),
            },
            "mask": mask[1:].astype(np.float32),
        }
        for ids, logprobs, advantages, mask in rows
        if len(ids) > 1
    ]
