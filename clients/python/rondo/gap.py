"""How far a trainer's log-probabilities are from the sampler's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Ragged

__all__ = ["LogprobGap", "logprob_gap"]

#: Differences are cut to this many nats in the divergence, so that no token makes it infinite.
CUT = 20.0
#: Largest difference in nats that can be stated; more is no log-probability.
MOST = 1e6


class LogprobGap(NamedTuple):
    """What `Feed.consumed` states: figures over the compared tokens, with d the trainer's and s the sampler's log-probability of a token.

    mean_abs, max_abs: mean and largest of |d - s|, in nats. kl: estimate of KL(sampler || trainer), the mean of r - 1 - ln r with
    r = exp(d - s), d - s cut to ±20: k3 of J. Schulman, "Approximating KL Divergence", 2020. tokens: how many were compared.
    """

    mean_abs: float
    max_abs: float
    kl: float
    tokens: int

    @staticmethod
    def merge(gaps: Iterable[LogprobGap | None]) -> LogprobGap | None:
        """The gap of several parts of a batch: of its micro-batches, or of the files of all ranks. None where no part has one."""
        parts = [g for g in gaps if g is not None]
        if not parts:
            return None
        tokens = sum(g.tokens for g in parts)
        mean, kl = (sum(g[i] * g.tokens for g in parts) / tokens for i in (0, 2))
        largest = max(g.max_abs for g in parts)
        return LogprobGap(min(mean, largest), largest, kl, tokens)


def logprob_gap(sampler: Ragged, of_version: npt.NDArray[np.bool_], logprobs: Any, *, shifted: bool = False) -> LogprobGap | None:
    """See Batch.logprob_gap. sampler: the batch's sampler_logprobs. of_version: bool [N], the tokens that the version has sampled."""
    firsts = np.zeros(len(sampler.values), np.bool_)
    firsts[sampler.offsets[:-1][sampler.lengths > 0]] = True
    known = ~firsts if shifted else np.ones(len(firsts), np.bool_)
    mask = of_version & known
    ours, theirs = _of_tokens(sampler.lengths, logprobs, shifted, known)[mask], sampler.values[mask].astype(np.float64)
    if len(ours) == 0:
        return None
    difference = ours - theirs
    wrong = ~(np.abs(difference) <= MOST)  # also what is not a number
    if wrong.any():
        i = int(np.argmax(wrong))
        token = int(np.flatnonzero(mask)[i])
        row = int(np.searchsorted(sampler.offsets, token, side="right")) - 1
        raise ValueError(
            f"the log-probability of token {token - int(sampler.offsets[row])} of sample {row} is {ours[i]} "
            f"where the sampler's is {theirs[i]}: log-probabilities are finite, and at most {MOST:.0f} nats apart"
        )
    size, cut = np.abs(difference), np.clip(difference, -CUT, CUT)
    divergence = np.maximum(np.expm1(cut) - cut, 0)  # rounding may give less than nothing
    largest = float(size.max())
    return LogprobGap(min(float(size.mean()), largest), largest, float(divergence.mean()), len(size))


def _of_tokens(lengths: npt.NDArray[np.int32], logprobs: Any, shifted: bool, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The trainer's log-probabilities in the order of the batch's tokens, float64 [N], right where known. lengths: int32 [B]."""
    out = np.zeros(len(known), np.float64)
    skip, samples = int(shifted), len(lengths)
    each = np.maximum(lengths - skip, 0)
    if isinstance(logprobs, Ragged):
        logprobs = list(logprobs.rows())
    if isinstance(logprobs, Sequence):
        rows = [_array(row) for row in logprobs]
        if [row.shape for row in rows] != [(n,) for n in each.tolist()]:
            raise ValueError(
                f"{len(rows)} rows of log-probabilities: want {samples}, one for each sample, of the lengths {_short(each.tolist())}"
            )
        out[known] = np.concatenate([*rows, np.zeros(0)])
        return out
    array = _array(logprobs)
    whole, width = max(len(known) - skip, 0), int(each.max()) if samples else 0
    if array.shape == (whole,):
        out[skip:] = array
    elif array.ndim == 2 and len(array) == samples and array.shape[1] >= width:
        out[known] = array[np.arange(array.shape[1]) < each[:, None]]
    else:
        raise ValueError(
            f"log-probabilities of the shape {array.shape}: want ({whole},), or ({samples}, {width} or more) padded on the right, "
            f"or a list of {samples} rows; shifted is {shifted}"
        )
    return out


def _array(values: Any) -> npt.NDArray[np.float64]:
    """Numbers of numpy, or a torch tensor of any device and type, as float64. torch is not imported."""
    if hasattr(values, "detach"):
        values = values.detach().double().cpu().numpy()
    found: npt.NDArray[np.float64] = np.asarray(values, np.float64)
    return found


def _short(values: list[int]) -> str:
    return f"{values[:8]}{' …' if len(values) > 8 else ''}"
