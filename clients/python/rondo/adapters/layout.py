"""What the adapters share: cutting prompts from responses, padding on the left, one advantage for each sample, tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..batch import Batch
from ..columns import Array, Ragged
from ..token_columns import TokenColumn

__all__ = [
    "cut",
    "left_padded",
    "masked_rows",
    "one_advantage",
    "positions",
    "shifted",
    "tensors",
    "whole_experts",
    "whole_rollouts",
    "without_images",
]


def without_images(batch: Batch) -> None:
    """Refuse a batch whose samples show images: no trainer gets these by an adapter, and without them their tokens mean something else."""
    if any(batch.images):
        raise ValueError("the batch has samples with images, which no adapter gives to the trainer: read Batch.images")


def positions(column: Ragged) -> npt.NDArray[np.int64]:
    """Place of each entry in its row: int64 [N]."""
    found: npt.NDArray[np.int64] = np.arange(len(column.values)) - np.repeat(column.offsets[:-1].astype(np.int64), column.lengths)
    return found


def cut(batch: Batch, column: Ragged) -> tuple[Ragged, Ragged]:
    """A per-token column before and from the first sampled token of each row: prompts and responses."""
    prompts: npt.NDArray[np.int32] = batch["prompt_length"]
    before = positions(column) < np.repeat(prompts, column.lengths)
    return Ragged(column.values[before], _offsets(prompts)), Ragged(column.values[~before], _offsets(column.lengths - prompts))


def shifted(column: Ragged) -> Ragged:
    """Rows without their first entries: what belongs to the token that each position predicts."""
    return Ragged(column.values[positions(column) > 0], _offsets(np.maximum(column.lengths - 1, 0)))


def left_padded(column: Ragged, fill: float = 0, width: int | None = None) -> Array:
    """Rows filled up on the left: [B, width]; width is that of the longest row unless given."""
    lengths = column.lengths
    longest = int(lengths.max()) if len(lengths) else 0
    out = np.full((len(lengths), longest if width is None else width), fill, column.values.dtype)
    out[np.arange(out.shape[1]) >= out.shape[1] - lengths[:, None]] = column.values
    return out


def one_advantage(batch: Batch) -> npt.NDArray[np.float32]:
    """The advantage of each sample: float32 [B], 0 where nothing was sampled.

    ValueError where the sampled tokens of a sample have different ones (rewards of turns or spans): a trainer that takes one number for
    each sample cannot be told so.
    """
    values = batch.advantages.values
    mask = batch.loss_mask.values
    rows = np.repeat(np.arange(len(batch)), batch.lengths)[mask]
    first = np.zeros(len(batch), np.float32)
    first[rows[::-1]] = values[mask][::-1]  # the first of each row is written last
    if not np.array_equal(first[rows], values[mask]):
        raise ValueError("tokens of one sample have different advantages, and this trainer takes one for each sample")
    return first


def whole_rollouts(batch: Batch, trainer: str) -> None:
    """ValueError where a rollout has several samples.

    A trainer that computes advantages from rewards takes each sample for a rollout of its own: one that was split would count
    as often as it has samples in the mean of its group.
    """
    if len(batch) and int(batch["samples_in_rollout"].max()) > 1:
        raise ValueError(
            f"a rollout of this batch has several samples, and {trainer} would count its reward once for each: "
            "let the trainer use the batch's advantages instead"
        )


def whole_experts(batch: Batch) -> TokenColumn:
    """The experts of a batch whose samples have them for all tokens but the last, which is 0.

    ValueError for another one: a trainer that replays routers would send tokens to experts that they never saw.
    """
    experts = batch.routed_experts()
    lacking = np.flatnonzero(~experts.whole)
    if len(lacking):
        raise ValueError(
            f"sample {lacking[0]} and {len(lacking) - 1} more have tokens whose experts are not known: "
            "take the others, batch.select(np.flatnonzero(batch.routed_experts().whole)), or let the run require them"
        )
    return experts


def masked_rows(batch: Batch) -> list[list[npt.NDArray[np.int32]]]:
    """What the sampler could choose from, for each token from the first sampled one on of each sample; empty where it was not sampled.

    ValueError where that is not known of a sampled token.
    """
    mask = batch.sampling_mask()
    if np.any(batch.loss_mask.values & ~mask.known):
        raise ValueError("what the sampler could choose from is not known of all sampled tokens: let the run require sampling_mask")
    rows = []
    for first, end, skip in zip(mask.offsets[:-1], mask.offsets[1:], batch["prompt_length"], strict=True):
        rows.append([mask.ids[mask.starts[t] : mask.starts[t + 1]] for t in range(int(first) + int(skip), int(end))])
    return rows


def tensors(told: dict[str, Any]) -> dict[str, Any]:
    """The same with every array as a torch tensor on the CPU, except arrays of objects. torch is imported only here."""
    import torch

    return {
        name: torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) and value.dtype != object else value
        for name, value in told.items()
    }


def _offsets(lengths: Any) -> npt.NDArray[np.int32]:
    offsets: npt.NDArray[np.int32] = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return offsets
