"""What servers said of tokens beside their log-probabilities: objects of rows, and which tokens these are of."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Array, Offsets
from .errors import Damaged, RondoError
from .objects import Ref, Store, fetch

__all__ = ["SamplingMask", "TokenColumn", "read_column", "read_mask"]

#: Kinds of numbers that objects hold.
_EXPERTS = ("|u1", "<u2")
_TOP = np.dtype([("id", "<i4"), ("logprob", "<f4")])


class TokenColumn(NamedTuple):
    """Rows of numbers for tokens: that of token t is values[t], and says nothing unless known[t].

    values: [N, ...], of all samples one after the other. known: bool [N]. offsets: int32 [B + 1], where each sample's tokens begin.
    """

    values: Array
    known: npt.NDArray[np.bool_]
    offsets: Offsets

    def row(self, i: int) -> tuple[Array, npt.NDArray[np.bool_]]:
        """The numbers of one sample's tokens and which are known, as views."""
        part = slice(self.offsets[i], self.offsets[i + 1])
        return self.values[part], self.known[part]

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Samples all of whose tokens but the last are known: bool [B]. No layer has seen the last one of a sample."""
        lacks = ~self.known
        lacks[self.offsets[1:][np.diff(self.offsets) > 0] - 1] = False
        sums = np.concatenate(([0], np.cumsum(lacks)))
        found: npt.NDArray[np.bool_] = sums[self.offsets[1:]] == sums[self.offsets[:-1]]
        return found


class SamplingMask(NamedTuple):
    """The tokens that the sampler could choose from: in the place of token t ids[starts[t]:starts[t + 1]]; none where it is not known.

    ids: int32. starts: int64 [N + 1]. known: bool [N]. offsets: int32 [B + 1], where each sample's tokens begin.
    """

    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    known: npt.NDArray[np.bool_]
    offsets: Offsets


class _Part(NamedTuple):
    start: int  # among the tokens of the batch
    length: int
    row: int
    object: Ref


def _parts(texts: list[str], offsets: Offsets, name: str) -> Iterator[_Part]:
    for sample, text in enumerate(texts):
        tokens, end = int(offsets[sample + 1] - offsets[sample]), 0
        try:
            told = [c for c in json.loads(text or "[]") if c["name"] == name]
            parts = [_Part(int(c["start"]), int(c["length"]), int(c.get("row", 0)), Ref.parse(c["object"])) for c in told]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"token columns of sample {sample}: {error!r}") from None
        for part in parts:
            if part.start < end or part.length < 1 or part.row < 0 or part.start + part.length > tokens:
                raise Damaged(f"token column {name} of sample {sample} does not fit its {tokens} tokens")
            if part.object.key != f"blobs/sha256/{part.object.sha256[:2]}/{part.object.sha256}":
                raise Damaged(f"token column {name} of sample {sample}: {part.object.key[:100]} is no blob")
            end = part.start + part.length
            yield part._replace(start=int(offsets[sample]) + part.start)


def _arrays(parts: Iterator[_Part], store: Store | None) -> Iterator[tuple[_Part, Array]]:
    """Each part with the array of its object; objects of neighbours are read once."""
    last: tuple[str, Array] | None = None
    for part in parts:
        if store is None:
            raise RondoError("token columns are in the object store: open the batch with a feed, or with open_batch(file, store=...)")
        if last is None or last[0] != part.object.sha256:
            try:
                array = np.load(io.BytesIO(fetch(store, part.object)), allow_pickle=False)
            except (ValueError, OSError, EOFError) as error:
                raise Damaged(f"{part.object.key} is no array: {error}") from None
            if not isinstance(array, np.ndarray):
                raise Damaged(f"{part.object.key} is no array")
            last = part.object.sha256, array
        yield part, last[1]


def read_column(texts: list[str], offsets: Offsets, name: str, store: Store | None) -> TokenColumn:
    """Read routed_experts or top_logprobs of a batch; Damaged where objects do not hold what the batch says."""
    good: Callable[[Array], bool] = (
        (lambda a: a.ndim == 3 and a.dtype.str in _EXPERTS) if name == "routed_experts" else (lambda a: a.ndim == 2 and a.dtype == _TOP)
    )
    count = int(offsets[-1])
    values: Array | None = None
    known = np.zeros(count, np.bool_)
    for part, array in _arrays(_parts(texts, offsets, name), store):
        if values is None and good(array):
            values = np.zeros((count, *array.shape[1:]), array.dtype)
            if array.dtype == _TOP:
                values["id"], values["logprob"] = -1, -np.inf
        if values is None or array.dtype != values.dtype or array.shape[1:] != values.shape[1:] or part.row + part.length > len(array):
            raise Damaged(f"{part.object.key}: {array.dtype} {array.shape} does not fit the other rows of {name}")
        values[part.start : part.start + part.length] = array[part.row : part.row + part.length]
        known[part.start : part.start + part.length] = True
    if values is None:
        values = np.zeros((count, 0, 0), np.uint8) if name == "routed_experts" else np.zeros((count, 0), _TOP)
    return TokenColumn(values, known, offsets)


def read_mask(texts: list[str], offsets: Offsets, store: Store | None) -> SamplingMask:
    """Read sampling_mask of a batch; Damaged where objects do not hold what the batch says."""
    count = int(offsets[-1])
    known, lengths = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    found: list[Array] = []
    for part, array in _arrays(_parts(texts, offsets, "sampling_mask"), store):
        rows = int(array[0]) if array.ndim == 1 and array.dtype.str == "<i4" and len(array) else -1
        sizes = array[1 : 1 + max(rows, 0)].astype(np.int64)
        if rows < part.row + part.length or len(sizes) != rows or np.any(sizes < 1) or 1 + rows + int(sizes.sum()) != len(array):
            raise Damaged(f"{part.object.key} is no sampling mask of {part.row + part.length} tokens")
        ends = 1 + rows + np.concatenate(([0], np.cumsum(sizes)))
        lengths[part.start : part.start + part.length] = sizes[part.row : part.row + part.length]
        known[part.start : part.start + part.length] = True
        found.append(array[ends[part.row] : ends[part.row + part.length]])
    ids: Any = np.concatenate(found) if found else np.zeros(0, np.int32)
    return SamplingMask(ids.astype(np.int32), np.concatenate(([0], np.cumsum(lengths))), known, offsets)
