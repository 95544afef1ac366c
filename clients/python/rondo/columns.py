"""Arrow columns as numpy arrays, without copying wherever numpy has the layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Array", "Offsets", "Ragged", "Spans", "dense", "ragged", "spans"]

Array = npt.NDArray[Any]
Offsets = npt.NDArray[np.int32]


class Ragged(NamedTuple):
    """Lists of different lengths: row i is values[offsets[i]:offsets[i + 1]].

    values: [N], of all rows one after the other. offsets: int32 [B + 1], beginning with 0.
    """

    values: Array
    offsets: Offsets

    @property
    def lengths(self) -> Offsets:
        """Entries of each row: int32 [B]."""
        return np.diff(self.offsets)

    def row(self, i: int) -> Array:
        """One row, as a view."""
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def rows(self) -> Iterator[Array]:
        """All rows, as views."""
        return (self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    def padded(self, fill: float = 0, width: int | None = None) -> Array:
        """The rows below one another, filled up on the right: [B, width]; width is that of the longest row unless given."""
        lengths = self.lengths
        out = np.full((len(lengths), _width(lengths, width)), fill, self.values.dtype)
        out[np.arange(out.shape[1]) < lengths[:, None]] = self.values
        return out


class Spans(NamedTuple):
    """Stretches of each row's tokens: span j begins at starts[j] of its row, is lengths[j] tokens long, and says `fields[name][j]`.

    starts, lengths, and each of fields: [M], of all rows one after the other. offsets: int32 [B + 1].
    """

    starts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    fields: dict[str, Array]
    offsets: Offsets

    def per_token(self, name: str, tokens: Offsets, fill: int = -1) -> Ragged:
        """What a field says of each token, fill where no span lies. tokens: offsets of the rows' tokens."""
        field = self.fields[name]
        values = np.full(int(tokens[-1]), fill, field.dtype)
        begins = np.repeat(tokens[:-1], np.diff(self.offsets)) + self.starts
        # Token numbers of all spans: a count that jumps where a span begins.
        ends = np.cumsum(self.lengths)
        numbers = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begins - (ends - self.lengths), self.lengths)
        values[numbers] = np.repeat(field, self.lengths)
        return Ragged(values, tokens)


def _width(lengths: Offsets, width: int | None) -> int:
    longest = int(lengths.max()) if len(lengths) else 0
    if width is None:
        return longest
    if width < longest:
        raise ValueError(f"a row has {longest} entries, more than the width {width}")
    return width


def dense(column: pa.Array) -> Array:
    """A column without lists: numbers as they lie, booleans from their bits, texts as objects."""
    if pa.types.is_boolean(column.type):
        return _bits(column)
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=object)
    out: Array = column.to_numpy(zero_copy_only=True)
    return out


def _bits(column: pa.Array) -> Array:
    buffer = column.buffers()[1]
    if len(column) == 0 or buffer is None:
        return np.zeros(0, np.bool_)
    first = column.offset // 8
    packed = np.frombuffer(buffer, np.uint8)[first : (column.offset + len(column) + 7) // 8]
    skip = column.offset - 8 * first
    return np.unpackbits(packed, count=skip + len(column), bitorder="little")[skip:].view(np.bool_)


def _offsets(column: pa.ListArray) -> tuple[Offsets, int, int]:
    """Offsets from 0 on, and the part of the child array that they speak of."""
    if len(column) == 0:
        return np.zeros(1, np.int32), 0, 0
    offsets: Offsets = column.offsets.to_numpy(zero_copy_only=True)
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets if first == 0 else offsets - np.int32(first)), first, last


def ragged(column: pa.ListArray) -> Ragged:
    """A column of lists of numbers or booleans."""
    offsets, first, last = _offsets(column)
    return Ragged(dense(column.values.slice(first, last - first)), offsets)


def spans(column: pa.ListArray) -> Spans:
    """A column of lists of structs that have a start and a length."""
    offsets, first, last = _offsets(column)
    child = column.values.slice(first, last - first)
    fields = {f.name: dense(child.field(i)) for i, f in enumerate(child.type)}
    return Spans(fields.pop("start"), fields.pop("length"), fields, offsets)
