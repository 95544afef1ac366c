"""The body of a fact: JSON, or packed, which holds tokens behind the JSON in a fraction of the bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["payload"]

#: Begins a packed body; a byte behind it is the layout.
MAGIC = b"\0RT"

#: The tokens that a packed body may hold, so that a hostile one takes a bounded amount of memory.
LIMIT = 4 << 20

_COLUMNS = ("prompt_delta", "token_ids", "logprobs")


def payload(body: bytes) -> Any:
    """The payload of a body, with its tokens as lists of numbers. ValueError for a body that nobody wrote."""
    if not body.startswith(MAGIC):
        return json.loads(body)
    layout, at = _uvarint(body, len(MAGIC))
    if layout != 1:
        raise ValueError(f"packed tokens: layout {layout} is not known")
    length, at = _uvarint(body, at)
    document = json.loads(body[at : at + length])
    count, at = _uvarint(body, at + length)
    if not isinstance(document, dict):
        raise ValueError("packed tokens: the document is no object")
    turns = document["turns"] if isinstance(document.get("turns"), list) else [document]
    if count != len(turns):
        raise ValueError(f"packed tokens: of {count} turns, the document has {len(turns)}")
    lengths = []
    for _ in range(3 * count):
        n, at = _uvarint(body, at)
        lengths.append(n)
    ids = sum(n for i, n in enumerate(lengths) if i % 3 < 2)
    total = sum(lengths)
    if total > LIMIT:
        raise ValueError(f"packed tokens: {total} of them (limit {LIMIT})")
    signs, at = _uvarint(body, at)
    numbers = _Numbers(total - ids, signs)
    planes = _decompress(body[at:], 4 * ids + numbers.size)
    tokens = iter(_column(planes[: 4 * ids]).view(np.int32).tolist())
    logprobs = iter(numbers.read(planes[4 * ids :]).tolist())
    for i, n in enumerate(lengths):
        if n:
            values: Iterator[float] = logprobs if i % 3 == 2 else tokens
            turns[i // 3][_COLUMNS[i % 3]] = list(islice(values, n))
    return document


def _decompress(frame: bytes, size: int) -> npt.NDArray[np.uint8]:
    try:
        planes = np.frombuffer(pa.Codec("zstd").decompress(frame, decompressed_size=size), np.uint8)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"packed tokens: {error}") from None
    if len(planes) != size:
        raise ValueError(f"packed tokens: {len(planes)} bytes, {size} were declared")
    return planes


class _Numbers:
    """n numbers; signs is 0 where all are negative and the body does not hold their signs."""

    def __init__(self, n: int, signs: int) -> None:
        if signs not in (0, 1):
            raise ValueError("packed tokens: neither with signs nor without")
        self.n, self.signs = n, signs
        self.low = (7 * n + 7) // 8
        self.size = self.low + 3 * n + signs * ((n + 7) // 8)

    def read(self, parts: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        n, low = self.n, self.low
        bits = np.unpackbits(parts[:low], bitorder="little")[: 7 * n].reshape(n, 7).astype(np.uint32)
        values = (bits << np.arange(7, dtype=np.uint32)).sum(axis=1, dtype=np.uint32)
        for shift, plane in zip((7, 15, 23), parts[low : low + 3 * n].reshape(3, n), strict=True):
            values |= plane.astype(np.uint32) << np.uint32(shift)
        negative = np.ones(n, np.uint32)
        if self.signs:
            negative = np.unpackbits(parts[low + 3 * n :], bitorder="little")[:n].astype(np.uint32)
        numbers: npt.NDArray[np.float32] = (values | negative << np.uint32(31)).view(np.float32)
        return numbers


def _column(planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The values of four planes, the lowest bytes first."""
    return np.ascontiguousarray(planes.reshape(4, -1).T).view("<u4").reshape(-1).astype(np.uint32)


def _uvarint(body: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where the next one is."""
    value = 0
    for shift in range(0, 63, 7):
        if at >= len(body):
            break
        value |= (body[at] & 0x7F) << shift
        at += 1
        if body[at - 1] < 0x80:
            return value, at
    raise ValueError("packed tokens: a length is cut off")
