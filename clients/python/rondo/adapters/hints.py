"""Distillation at hints, for any trainer: the divergence of the policy from itself with the hint in its context, at the hinted tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..batch import Batch
from .layout import positions

__all__ = ["HintLoss", "hint_loss"]


class HintLoss(NamedTuple):
    """Sums over the hinted tokens, to be divided by the tokens of all micro-batches and ranks together.

    loss: of (s - t)² / 2, with s the policy's and t the teacher's log-probability of a token; add its mean, weighed, to the trainer's loss.
    Where the policy sampled the token, its gradient is that of KL(policy || teacher): k2 of J. Schulman, "Approximating KL Divergence",
    2020. kl: of s - t, which estimates that divergence, a float. tokens: how many.
    """

    loss: Any
    kl: float
    tokens: int


def hint_loss(batch: Batch, teacher: str, logprobs: Any, *, shifted: bool = False) -> HintLoss:
    """The divergence at the tokens of the batch that hints are about, and of which the teacher has said something.

    teacher: of the batch, one that takes hints. logprobs: the policy's log-probabilities at temperature 1, without the hints, with their
    gradient: a torch tensor or numpy array, flat [N] or padded on the right [B, S]. shifted: each row, or the flat array, lacks its first
    token, as `logits[:, :-1]` gives them. ValueError when the shape is another.
    """
    said = batch.hinted_logprobs(teacher)
    places, skip = positions(said), int(shifted)
    at = np.flatnonzero(np.isfinite(said.values) & (places >= skip))  # nothing is said of a first token that is left out
    shape = tuple(logprobs.shape)
    width = int(batch.lengths.max()) - skip if len(batch) else 0
    if shape == (max(batch.token_count - skip, 0),):
        ours = logprobs[at - skip]
    elif len(shape) == 2 and shape[0] == len(batch) and shape[1] >= width:
        rows = np.repeat(np.arange(len(batch)), batch.lengths)[at]
        ours = logprobs[rows, places[at] - skip]
    else:
        raise ValueError(
            f"log-probabilities of the shape {shape}: want ({batch.token_count - skip},), or ({len(batch)}, {width} or more) padded on the "
            f"right; shifted is {shifted}"
        )
    theirs = said.values[at].astype(np.float64)
    gap = ours - (ours.new_tensor(theirs) if hasattr(ours, "new_tensor") else theirs)
    plain = gap.detach() if hasattr(gap, "detach") else gap
    return HintLoss((gap**2).sum() / 2, float(plain.sum()), len(at))
