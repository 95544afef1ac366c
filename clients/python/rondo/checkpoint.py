"""Checkpoints on the disk: the tensors of safetensors files as their bytes, mapped and not read into memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .columns import Array
from .errors import Damaged

__all__ = ["TORCH", "Tensor", "mapped", "parse", "read"]

_MAX_HEADER = 100 << 20
#: Torch's names of the element types.
TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: its type by its name in the format, and its bytes."""

    name: str
    dtype: str
    shape: list[int]
    data: Array


def mapped(path: Path) -> Array:
    """The bytes of a file, which are read when they are looked at."""
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)


def read(path: Path) -> Iterator[tuple[str, Array, list[Tensor]]]:
    """The safetensors files of a folder, or one file: name, bytes and tensors of each."""
    paths = sorted(p for p in path.glob("*.safetensors") if not p.name.startswith(".")) if path.is_dir() else [path]
    if not paths:
        raise ValueError(f"{path}: no file ends in .safetensors")
    for p in paths:
        data = mapped(p)
        yield p.name, data, parse(p.name, data)[1]


def parse(name: str, data: Array, size: int | None = None) -> tuple[bytes, list[Tensor]]:
    """Everything before the tensors' bytes, and the tensors in the order of these. size: of the file, where data ends with the header."""
    length = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or length > min(_MAX_HEADER, len(data) - 8):
        raise Damaged(f"{name}: a header of {length} bytes in a file of {len(data)}")
    header = data[: 8 + length].tobytes()
    try:
        told = {key: value for key, value in json.loads(header[8:]).items() if key != "__metadata__"}
        spans = [
            (int(t["data_offsets"][0]), int(t["data_offsets"][1]), key, str(t["dtype"]), [int(n) for n in t["shape"]])
            for key, t in told.items()
        ]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{name}: header: {error!r}") from None
    spans.sort()
    end, tensors = 0, []
    for begin, until, key, dtype, shape in spans:
        if begin != end or until < begin:
            raise Damaged(f"{name}: tensor {key[:80]!r} begins at byte {begin} of the data, and the one before ends at {end}")
        end = until
        place = data[8 + length + begin : 8 + length + until] if size is None else np.broadcast_to(np.uint8(0), (until - begin,))
        tensors.append(Tensor(key, dtype, shape, place))
    if 8 + length + end != (len(data) if size is None else size):
        raise Damaged(f"{name}: the tensors end at byte {end} of the data of a file of {len(data) if size is None else size}")
    return header, tensors
