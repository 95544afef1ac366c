"""prime-rl: micro-batches of samples one after the other, with values for every token; nothing is shifted."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import positions

__all__ = ["to_prime_rl", "to_prime_rl_samples"]


def to_prime_rl(batch: Batch) -> list[dict[str, Any]]:
    """The micro-batches of this rank, as many as on every other; each has the fields of a MicroBatch, in their order on the wire.

    For n tokens of m samples: input_ids int32, loss_mask bool, advantages, inference_logprobs float32, position_ids int64 (from 0 in every
    sample), temperatures float32, env_names (list), all [n]; sequence_lengths and seq_lens int64 [m]. An empty
    micro-batch, which only keeps the ranks in step, becomes one token that is not trained on.
    """
    return [_micro_batch(part) for part in batch.micro_batches()]


def _micro_batch(part: Batch) -> dict[str, Any]:
    lengths = part.lengths.astype(np.int64)
    if part.token_count == 0:
        nothing = np.zeros(1, np.float32)
        return _fields(
            np.zeros(1, np.int32), np.zeros(1, np.bool_), nothing, nothing, np.zeros(1, np.int64), np.ones(1, np.int64), nothing + 1, [""]
        )
    return _fields(
        part.tokens.values,
        part.loss_mask.values,
        part.advantages.values,
        part.sampler_logprobs.values,
        positions(part.tokens),
        lengths,
        np.repeat(part["temperature"], lengths),
        np.repeat(part["task"], lengths).tolist(),
    )


def _fields(
    ids: Any, mask: Any, advantages: Any, logprobs: Any, places: Any, lengths: Any, temperatures: Any, names: list[str]
) -> dict[str, Any]:
    return {
        "input_ids": ids,
        "loss_mask": mask,
        "advantages": advantages,
        "inference_logprobs": logprobs,
        "position_ids": places,
        "sequence_lengths": lengths,
        "temperatures": temperatures,
        "env_names": names,
        "seq_lens": lengths.copy(),
    }


def to_prime_rl_samples(batch: Batch) -> list[dict[str, Any]]:
    """The fields of a TrainingSample for each sample, for its own packer: token_ids, mask, logprobs, temperatures, env_name, advantages."""
    rows = zip(batch.tokens.rows(), batch.loss_mask.rows(), batch.sampler_logprobs.rows(), batch.advantages.rows(), strict=True)
    temperatures, names = batch["temperature"].tolist(), batch["task"].tolist()
    return [
        {
            "token_ids": ids.tolist(),
            "mask": mask.tolist(),
            "logprobs": logprobs.tolist(),
            "temperatures": [temperatures[i]] * len(ids),
            "env_name": names[i],
            "advantages": advantages.tolist(),
        }
        for i, (ids, mask, logprobs, advantages) in enumerate(rows)
    ]
