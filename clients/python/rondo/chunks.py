"""Chunks of deltas: what changed in 4 MiB of a tensor, as `weights/delta` of Rondo reads and writes it.

A frame is a mode, the digest of the chunk's new bytes, and streams packed by zstd. A difference is one of integers as wide as the
tensor's elements, with wrap-around.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .columns import Array
from .errors import Damaged

__all__ = ["CHUNK", "apply", "changed", "digest", "digest_of_all", "frame_limit", "width"]

#: Bytes of a tensor that are encoded together.
CHUNK = 4 << 20

_SPARSE, _DENSE, _FULL = 1, 2, 3
_HEAD = 17  # bytes of mode and digest
_WIDTHS = {8: ("F64", "I64", "U64"), 4: ("F32", "I32", "U32", "C64"), 2: ("F16", "BF16", "I16", "U16")}
_BITS = np.array([bin(i).count("1") for i in range(256)], np.uint8)


def width(dtype: str) -> int:
    """Bytes that are subtracted as one integer."""
    return next((size for size, dtypes in _WIDTHS.items() if dtype in dtypes), 1)


def frame_limit(size: int) -> int:
    """Bytes of the frame of a chunk of so many bytes at most."""
    return size + size // 2 + 256


def digest(data: Any) -> bytes:
    """The xxh3-128 of bytes."""
    return bytes(_xxh3().xxh3_128_digest(data))


def digest_of_all(digests: list[bytes]) -> bytes:
    """A tensor's digest: over those of its chunks."""
    return digest(b"".join(digests))


def _xxh3() -> Any:
    try:
        import xxhash
    except ImportError:
        raise ImportError("deltas need the package xxhash: pip install xxhash") from None
    return xxhash


def changed(old: Array | None, new: Array, size: int, digested: bytes) -> bytes:
    """The frame that leads from a chunk's old bytes to its new ones, whose digest is given; none where nothing changed.

    size: bytes of an element. old: None where there is nothing to compare with.
    """
    if old is None:
        return _whole(new, size, digested)
    kind = np.dtype(f"<u{size}")
    before, after = old.view(kind), new.view(kind)
    at = np.flatnonzero(before != after)
    if not len(at):
        return b""
    if len(at) <= len(after) // 4 + 8:
        return bytes([_SPARSE]) + digested + _sparse(at, (after[at] - before[at]).astype(kind), len(after))
    if int(_BITS[old ^ new].sum(dtype=np.int64)) * 10 > 3 * 8 * len(new):
        return _whole(new, size, digested)
    return bytes([_DENSE]) + digested + _planes(_zigzag(after - before))


def _whole(new: Array, size: int, digested: bytes) -> bytes:
    return bytes([_FULL]) + digested + _planes(new.view(f"<u{size}"))


def _sparse(at: Array, differences: Array, units: int) -> bytes:
    size = differences.dtype.itemsize
    gaps = np.diff(at, prepend=-1) - 1
    shift = 8 if units // len(at) >= 160 else 0
    lows = b""
    if shift:
        lows = gaps.astype(np.uint8).tobytes()
        gaps >>= 8
    many, rest = np.divmod(gaps, 255)
    highs = rest.astype(np.uint8)
    if many.any():  # 255 means: 255 and more follows
        ends = np.cumsum(many + 1)
        highs = np.full(int(ends[-1]), 255, np.uint8)
        highs[ends - 1] = rest
    negative = differences >> np.uint8(8 * size - 1) != 0
    magnitudes = np.where(negative, np.zeros_like(differences) - differences, differences) - np.ones_like(differences)
    large = magnitudes >= 15
    escapes = (magnitudes[large] - differences.dtype.type(15)).astype(differences.dtype).tobytes()
    small = np.zeros(len(at) + len(at) % 2, np.uint8)
    small[: len(at)] = np.minimum(magnitudes, differences.dtype.type(15))
    streams = [
        _pack(highs.tobytes()),
        _pack(lows),
        _pack(np.packbits(negative, bitorder="little").tobytes(), squeeze=False),  # signs are noise
        _pack((small[0::2] | small[1::2] << 4).tobytes()),
        _pack(escapes),
    ]
    return _uvarint(len(at)) + bytes([shift]) + b"".join(streams)


def _zigzag(differences: Array) -> Array:
    """Small numbers of small differences of either sign: 0, -1, 1, -2 become 0, 1, 2, 3."""
    size = differences.dtype.itemsize
    signed = differences.view(f"<i{size}")
    turned: Array = ((signed << 1) ^ (signed >> (8 * size - 1))).view(differences.dtype)
    return turned


def _unzigzag(values: Array) -> Array:
    one = values.dtype.type(1)
    turned: Array = (values >> one) ^ (np.zeros_like(values) - (values & one))
    return turned


def _planes(values: Array) -> bytes:
    """The first bytes of all units, then the second ones, and so on."""
    size = values.dtype.itemsize
    table = np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
    return b"".join(_pack(np.ascontiguousarray(table[:, plane]).tobytes()) for plane in range(size))


def _codec() -> Any:
    return pa.Codec("zstd", compression_level=1)


def _pack(data: bytes, squeeze: bool = True) -> bytes:
    """A stream: its length, its length when packed (0: it is not), and its bytes."""
    if squeeze and len(data) > 16:
        packed = _codec().compress(data, asbytes=True)
        if len(packed) < len(data):
            return _uvarint(len(data)) + _uvarint(len(packed)) + bytes(packed)
    return _uvarint(len(data)) + b"\0" + data


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    """Reads a frame from front to end. Whatever does not fit is Damaged."""

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def number(self) -> int:
        value = 0
        for i, byte in enumerate(self.data[:10]):
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                self.data = self.data[i + 1 :]
                return value
        raise Damaged("a frame ends in a number")

    def take(self, length: int) -> memoryview:
        if length > len(self.data):
            raise Damaged(f"a frame ends {length - len(self.data)} bytes too early")
        taken, self.data = self.data[:length], self.data[length:]
        return taken

    def stream(self, limit: int) -> Array:
        length = self.number()
        packed = self.number()
        if length > limit:
            raise Damaged(f"a stream of {length} bytes (limit {limit})")
        if not packed:
            return np.frombuffer(self.take(length), np.uint8)
        stored = self.take(packed)
        try:
            plain = _codec().decompress(stored, decompressed_size=length, asbytes=True)
        except (OSError, ValueError) as error:
            raise Damaged(f"a stream is no frame of {length} bytes: {error}") from None
        if len(plain) != length:
            raise Damaged(f"a stream of {len(plain)} bytes in place of {length}")
        return np.frombuffer(plain, np.uint8)

    def end(self) -> None:
        if len(self.data):
            raise Damaged(f"{len(self.data)} bytes of a frame are left over")


def apply(frame: bytes, data: Array, size: int, difference: bool) -> bytes:
    """Change a chunk's old bytes into the new ones; their digest. difference: whether there are old ones. Damaged."""
    if len(frame) < _HEAD:
        raise Damaged(f"a frame of {len(frame)} bytes")
    mode, reader, units = frame[0], _Reader(memoryview(frame)[_HEAD:]), data.view(f"<u{size}")
    if mode != _FULL and not difference:
        raise Damaged("a chunk is a difference to nothing")
    if mode == _SPARSE:
        _add(reader, units)
    elif mode in (_DENSE, _FULL):
        table = np.empty((len(units), size), np.uint8)
        for plane in range(size):
            stream = reader.stream(len(units))
            if len(stream) != len(units):
                raise Damaged(f"a plane of {len(stream)} units in place of {len(units)}")
            table[:, plane] = stream
        values = table.reshape(-1).view(units.dtype)
        units[:] = values if mode == _FULL else units + _unzigzag(values)
    else:
        raise Damaged(f"a chunk of mode {mode}")
    reader.end()
    found = digest(data)
    if found != frame[1:_HEAD]:
        raise Damaged("a chunk has another digest: the delta is damaged, or the base is another one")
    return found


def _add(reader: _Reader, units: Array) -> None:
    count, size = reader.number(), units.dtype.itemsize
    shift = reader.take(1)[0]
    if not 0 < count <= len(units) or shift not in (0, 8):
        raise Damaged(f"{count} of {len(units)} units, shift {shift}")
    limits = (count + len(units) // 255 + 1, count, (count + 7) // 8, (count + 1) // 2, count * size)
    highs, lows, signs, magnitudes, escapes = (reader.stream(limit) for limit in limits)
    if len(lows) != (count if shift else 0) or len(signs) != (count + 7) // 8 or len(magnitudes) != (count + 1) // 2 or not len(highs):
        raise Damaged("streams have other lengths than their count")
    ends = np.flatnonzero(highs != 255)
    if len(ends) != count or ends[-1] != len(highs) - 1:
        raise Damaged(f"{len(ends)} gaps in place of {count}")
    gaps = np.diff(np.concatenate(([0], np.cumsum(highs.astype(np.int64))[ends])))
    if shift:
        gaps = gaps << 8 | lows
    at = np.cumsum(gaps + 1) - 1
    if at[-1] >= len(units):
        raise Damaged(f"unit {at[-1]} of {len(units)}")
    nibbles = np.stack((magnitudes & 15, magnitudes >> 4), 1).reshape(-1)[:count]
    values, large = nibbles.astype(units.dtype), nibbles == 15
    if len(escapes) != int(large.sum()) * size:
        raise Damaged("escapes are left over or missing")
    values[large] += escapes.view(units.dtype)
    values += units.dtype.type(1)
    negative = np.unpackbits(signs, count=count, bitorder="little") != 0
    units[at] += np.where(negative, np.zeros_like(values) - values, values).astype(units.dtype)
