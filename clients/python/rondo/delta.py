"""Deltas between checkpoints, lossless and a few per cent of their bytes, in the format of Rondo's publisher and side-car.

    with open("step.rondodelta", "wb") as out:
        rondo.delta.encode("/models/mine/v11", "/models/mine/v12", out)
    rondo.delta.apply("/models/mine/v11", "step.rondodelta", "/elsewhere/v12")

It needs the package xxhash (`pip install xxhash`). The older version is mapped and not read into memory.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import struct
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from . import chunks
from .checkpoint import Tensor, mapped, parse, read
from .chunks import CHUNK
from .errors import Damaged
from .weights import NAME, File, Weights, files

__all__ = ["EXTENSION", "apply", "encode"]

#: What a delta's file ends in.
EXTENSION = ".rondodelta"

_MAGIC = b"RONDODW1"
_FOOTER = struct.Struct("<QQ16s8s")  # bytes of the index, and of its text; digest of the index; magic
_MAX_INDEX = 128 << 20
_WORKERS = min(os.cpu_count() or 1, 6)


@dataclass
class _Entry:
    """A tensor of a delta that is being written."""

    tensor: Tensor
    base: Tensor | None
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {"name": self.tensor.name}
        if self.base is not None:
            told.update({"from": self.base.name, "old": chunks.digest_of_all(self.old).hex()})
        told["new"] = chunks.digest_of_all(self.new).hex()
        if any(self.sizes):
            told["sizes"] = self.sizes
        return told


def encode(base: str | os.PathLike[str], weights: Weights, out: BinaryIO, metadata: Mapping[str, str] | None = None) -> None:
    """Write the delta that leads from base, a file or a folder, to weights: arrays or torch tensors by name, or a path.

    Arrays become files as publish_weights writes them, one after the other, so that one of 512 MiB at most is in memory.
    """
    encode_files(base, files(weights, metadata or {}), out)


def encode_files(base: str | os.PathLike[str], new: Iterable[File], out: BinaryIO) -> None:
    """The same for files as `weights.files` makes them. Those that are not safetensors are left out."""
    old = {tensor.name: tensor for _, _, tensors in read(Path(base)) for tensor in tensors}
    described, entries = [], []
    out.write(_MAGIC)
    with ThreadPoolExecutor(_WORKERS) as pool:
        for file in new:
            if not file.name.endswith(".safetensors"):
                continue
            data = mapped(file.data) if isinstance(file.data, Path) else np.frombuffer(file.data, np.uint8)
            header, tensors = parse(file.name, data)
            described.append({"name": file.name, "size": len(data), "header": base64.b64encode(header).decode()})
            made = [_Entry(tensor, _same(old.get(tensor.name), tensor)) for tensor in tensors]
            _write(pool, made, out)
            entries += [entry.told() for entry in made]
    text = json.dumps({"files": described, "tensors": entries}, separators=(",", ":"), ensure_ascii=False).encode()
    if len(text) > _MAX_INDEX:
        raise ValueError(f"an index of {len(text)} bytes (limit {_MAX_INDEX})")
    packed = bytes(pa.Codec("zstd").compress(text, asbytes=True))
    out.write(packed + _FOOTER.pack(len(packed), len(text), chunks.digest(packed), _MAGIC))


def _same(base: Tensor | None, tensor: Tensor) -> Tensor | None:
    return base if base is not None and (base.dtype, len(base.data)) == (tensor.dtype, len(tensor.data)) else None


def _write(pool: ThreadPoolExecutor, entries: list[_Entry], out: BinaryIO) -> None:
    """Chunks are made by several threads, and come out in their order."""
    under_way: deque[tuple[_Entry, Future[tuple[bytes, bytes, bytes]]]] = deque()

    def finish() -> None:
        entry, future = under_way.popleft()
        frame, old, new = future.result()
        out.write(frame)
        entry.old.append(old)
        entry.new.append(new)
        entry.sizes.append(len(frame))

    for entry in entries:
        for at in range(0, len(entry.tensor.data), CHUNK):
            under_way.append((entry, pool.submit(_chunk, entry.tensor, entry.base, at)))
            if len(under_way) > 2 * _WORKERS:
                finish()
    while under_way:
        finish()


def _chunk(tensor: Tensor, base: Tensor | None, at: int) -> tuple[bytes, bytes, bytes]:
    """The frame, and the digests of old and new bytes."""
    # Copies, since tensors need not be aligned in a file, and since a trainer may go on with what the array points to.
    new = np.array(tensor.data[at : at + CHUNK])
    old = None if base is None else np.array(base.data[at : at + CHUNK])
    digested = chunks.digest(new)
    frame = chunks.changed(old, new, chunks.width(tensor.dtype), digested)
    return frame, chunks.digest(old) if old is not None and frame else digested, digested


def apply(base: str | os.PathLike[str], delta: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Path:
    """Write the files that a delta leads to from base into a new folder, byte for byte; the folder.

    It appears when every digest is right, or not at all. Damaged where the delta is damaged or was made from another base.
    """
    place = Path(folder)
    if place.exists():
        raise FileExistsError(f"{place} exists")
    old = {tensor.name: tensor for _, _, tensors in read(Path(base)) for tensor in tensors}
    partial = Path(tempfile.mkdtemp(prefix=f".{place.name}.partial", dir=place.parent))
    try:
        with open(delta, "rb") as file:
            _unfold(old, file, partial)
        partial.chmod(0o755)
        os.replace(partial, place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return place


def _unfold(old: Mapping[str, Tensor], file: BinaryIO, folder: Path) -> None:
    index, end = _index(file)
    file.seek(len(_MAGIC))
    try:
        entries = iter(index["tensors"])
        for described in index["files"]:
            name, size = str(described["name"]), int(described["size"])
            header = base64.b64decode(described["header"], validate=True)
            if not NAME.fullmatch(name) or not name.endswith(".safetensors"):
                raise Damaged(f"file name {name[:140]!r}")
            _, tensors = parse(name, np.frombuffer(header, np.uint8), size)
            with open(folder / name, "xb") as out:
                out.write(header)
                for tensor in tensors:
                    entry = next(entries, None)
                    if entry is None or entry["name"] != tensor.name:
                        raise Damaged(f"tensor {tensor.name[:80]!r} of {name} has no entry in its place")
                    _unfold_tensor(tensor, entry, old, file, end, out)
        if next(entries, None) is not None or file.tell() != end:
            raise Damaged("entries or chunks are left over")
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise Damaged(f"the delta's index: {error!r}") from None


def _index(file: BinaryIO) -> tuple[Any, int]:
    """The index, and where the chunks end."""
    size = file.seek(0, os.SEEK_END)
    if size < len(_MAGIC) + _FOOTER.size:
        raise Damaged(f"a delta of {size} bytes")
    file.seek(size - _FOOTER.size)
    stored, length, digested, magic = _FOOTER.unpack(file.read(_FOOTER.size))
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC or magic != _MAGIC:
        raise Damaged(f"it does not begin and end with {_MAGIC.decode()}")
    end = size - _FOOTER.size - stored
    if end < len(_MAGIC) or length > _MAX_INDEX:
        raise Damaged(f"an index of {stored} bytes, of text {length}, in a delta of {size}")
    file.seek(end)
    packed = file.read(stored)
    if chunks.digest(packed) != digested:
        raise Damaged("the index has another digest")
    try:
        return json.loads(pa.Codec("zstd").decompress(packed, decompressed_size=length, asbytes=True)), end
    except (OSError, ValueError) as error:
        raise Damaged(f"the index: {error}") from None


def _unfold_tensor(tensor: Tensor, entry: Mapping[str, Any], old: Mapping[str, Tensor], file: BinaryIO, end: int, out: BinaryIO) -> None:
    size, base = len(tensor.data), None
    count = -(-size // CHUNK)
    sizes = [int(n) for n in entry.get("sizes") or [0] * count]
    if len(sizes) != count:
        raise Damaged(f"tensor {tensor.name[:80]!r}: {len(sizes)} chunks in place of {count}")
    if source := entry.get("from"):
        base = _same(old.get(source), tensor)
        if base is None:
            raise Damaged(f"the base has no tensor {source[:80]!r} of {size} bytes of {tensor.dtype}: it is another one")
    digests = []
    for i, stored in enumerate(sizes):
        at, length = i * CHUNK, min(CHUNK, size - i * CHUNK)
        if not 0 <= stored <= chunks.frame_limit(length) or file.tell() + stored > end or (stored == 0 and base is None):
            raise Damaged(f"tensor {tensor.name[:80]!r}: chunk {i} has {stored} bytes")
        data = np.zeros(length, np.uint8) if base is None else np.array(base.data[at : at + length])
        if stored:
            digests.append(chunks.apply(file.read(stored), data, chunks.width(tensor.dtype), base is not None))
        else:
            digests.append(chunks.digest(data))
        out.write(data.data)
    if chunks.digest_of_all(digests).hex() != entry["new"]:
        raise Damaged(f"tensor {tensor.name[:80]!r} has another digest: the delta is damaged, or the base is another one")
