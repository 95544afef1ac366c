"""Which numbers are token ids and log-probabilities: the rules of the plane (storage/tokencheck), checked before anything is handed in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_SAMPLED", "LEAST_SCORED", "logprobs_of", "mask_of", "token_ids_of"]

#: Near the logarithm of the least probability that float32 holds. No sampler draws such a token; -100, -9999, -1e30 and others mean "none".
LEAST_SAMPLED = -100.0
#: Below what any model says of a token that it is given.
LEAST_SCORED = -1000.0
#: How far above 0 the log-probability of a certain token may come out in half precision.
ROUNDING = 1e-3

_MAX_ID = (1 << 31) - 1


def token_ids_of(ids: Sequence[int] | Any) -> npt.NDArray[np.int32]:
    """Token ids as int32 [T]. ValueError names the first that is none: no fraction, boolean or text is taken for a number, not even 5.0."""
    values = _numbers(ids, "iu", _whole, "the id", f"want a whole number from 0 to {_MAX_ID}")
    array = np.array([v if -1 <= v <= _MAX_ID else -1 for v in values] if isinstance(values, list) else values)
    wrong = np.flatnonzero((array < 0) | (array > _MAX_ID))
    if len(wrong):
        raise ValueError(f"token {wrong[0]} has the id {values[wrong[0]]!r}: want a whole number from 0 to {_MAX_ID}")
    return array.astype(np.int32)


def logprobs_of(
    logprobs: Sequence[float] | Any, where: npt.NDArray[np.bool_] | None = None, least: float = LEAST_SAMPLED
) -> npt.NDArray[np.float32]:
    """Natural log-probabilities as float32 [T]; those just above 0 become 0. ValueError names the first that is none.

    where: [T], true for the tokens that must have one; None: all. least: those that are not above it stand for none.
    """
    values = np.array(_numbers(logprobs, "fiu", _real, "the log-probability", "want a number"), np.float64)
    values = np.where((values > 0) & (values <= ROUNDING), 0.0, values)
    none = ~((values > least) & (values <= 0))
    wrong = np.flatnonzero(none if where is None or len(where) != len(none) else none & where)
    if len(wrong):
        v = values[wrong[0]]
        why = "no logarithm of a probability is above 0" if 0 < v < np.inf else "which stands for no log-probability"
        raise ValueError(f"token {wrong[0]} has {v:g}: {why}")
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def mask_of(mask: Sequence[bool] | Any) -> npt.NDArray[np.bool_]:
    """A mask as bool [T], of booleans, or of 0 and 1. ValueError for anything else."""
    values = np.array(_numbers(mask, "biu", _whole_or_bool, "the mask", "want true or false"))
    if not np.isin(values, (0, 1)).all():
        raise ValueError("the mask has other values than true and false")
    return values.astype(np.bool_)


def _numbers(given: Any, kinds: str, one: Callable[[Any], Any], what: str, want: str) -> Any:
    """The numbers of an array of one of the kinds, as it is, or of any other sequence, each read by `one`."""
    if hasattr(given, "__array__"):
        array = np.asarray(given)
        if array.ndim != 1:
            raise ValueError(f"{array.ndim} dimensions instead of 1")
        if array.dtype.kind in kinds or len(array) == 0:
            return array
        if array.dtype.kind != "O":
            raise ValueError(f"token 0 has {what} {array[0]!s}, of {array.dtype}: {want}")
        given = array.tolist()
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"{given!r:.40} is no list")
    values = list(given)
    for i, v in enumerate(values):
        try:
            values[i] = one(v)
        except (TypeError, ValueError):
            raise ValueError(f"token {i} has {what} {v!r:.40}: {want}") from None
    return values


def _boolean(v: Any) -> bool:
    return isinstance(v, bool) or str(getattr(v, "dtype", "")).endswith("bool")


def _whole(v: Any) -> int:
    if _boolean(v):
        raise TypeError
    return operator.index(v)


def _whole_or_bool(v: Any) -> int:
    return int(bool(v)) if _boolean(v) else operator.index(v)


def _real(v: Any) -> float:
    if _boolean(v) or isinstance(v, str | bytes):
        raise TypeError
    return float(v)
