"""Deltas as slime and as SkyRL publish them, for engines that read one of these layouts from a shared folder.

    rondo.layouts.write_slime("/shared/deltas", 12, "/models/mine/v11", weights)    # weight_v000012/
    rondo.layouts.write_skyrl("/shared/deltas", 12, "/models/mine/v11", weights)    # delta-00000012/
    rondo.layouts.read_slime("/shared/deltas", 12, "/models/mine/v11", "/elsewhere/v12")

A version leads from the one before it. Both layouts hold tensors that the older version has, too, in the same type and shape: weights that
have others, or lack one, are a ValueError, since the readers would leave them as they are. The layouts are those of slime's
`disk_delta` and SkyRL 0.4's `DeltaCheckpointPublisher`. They are larger than Rondo's own deltas. They need the package xxhash.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors.numpy import save_file

from . import chunks
from .checkpoint import TORCH, Tensor, mapped, parse, read
from .columns import Array
from .errors import Damaged
from .weights import Weights, files

__all__ = ["read_skyrl", "read_slime", "write_skyrl", "write_slime"]

#: Bytes of packed tensors in a file.
SHARD = 512 << 20

_INDEX, _MANIFEST = "model.safetensors.index.json", "manifest.json"
_MAX_TEXT = 256 << 20


@dataclass(frozen=True)
class _Change:
    tensor: Tensor
    packed: bytes
    checksum: str


def write_slime(
    folder: str | os.PathLike[str], version: int, base: str | os.PathLike[str], weights: Weights, encoding: str = "xor"
) -> Path:
    """Write a version from the one before in slime's layout; its folder. Its index comes last: then the version is there.

    encoding: xor, or overwrite, which may be applied twice.
    """
    pack = {"xor": _xor, "overwrite": _overwrite}.get(encoding)
    if pack is None:
        raise ValueError(f"encoding {encoding!r}: must be xor or overwrite")
    place = Path(folder, f"weight_v{version:06}")
    place.mkdir(parents=True)
    shards: list[list[str]] = []
    for changes in _shards(base, weights, pack):
        _save(place / f"{len(shards)}.tmp", changes, {c.tensor.name: c.checksum for c in changes})
        shards.append([c.tensor.name for c in changes])
    places: dict[str, str] = {}
    for i, names in enumerate(shards):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        os.replace(place / f"{i}.tmp", place / file)
        places.update(dict.fromkeys(names, file))
    metadata = {
        "version": f"{version:06}",
        "base_version": f"{version - 1:06}",
        "delta_encoding": encoding,
        "compression_format": "zstd",
        "checksum_format": "xxh3-128",
    }
    _commit(place / _INDEX, {"metadata": metadata, "weight_map": places})
    return place


def write_skyrl(folder: str | os.PathLike[str], version: int, base: str | os.PathLike[str], weights: Weights) -> Path:
    """Write a version from the one before in SkyRL's layout; its folder. Its manifest comes last: then the version is there."""
    place = Path(folder, f"delta-{version:08}")
    place.mkdir(parents=True)
    records: list[dict[str, Any]] = []
    names: list[str] = []
    for changes in _shards(base, weights, _xor):
        names.append(f"delta-rank00000-file{len(names):06}.safetensors")
        _save(place / names[-1], changes, None)
        records += [
            {
                "name": c.tensor.name,
                "dtype": TORCH.get(c.tensor.dtype, c.tensor.dtype.lower()),
                "shape": c.tensor.shape,
                "uncompressed_num_bytes": len(c.tensor.data),
                "compressed_num_bytes": len(c.packed),
                "payload_file": names[-1],
                "payload_key": c.tensor.name,
                "checksum": c.checksum,
                "checksum_algorithm": "xxh3-128",
            }
            for c in changes
        ]
    manifest = {
        "version": version,
        "base_version": version - 1,
        "tensors": records,
        "total_uncompressed_num_bytes": sum(r["uncompressed_num_bytes"] for r in records),
        "total_compressed_num_bytes": sum(r["compressed_num_bytes"] for r in records),
        "payload_files": names,
    }
    _commit(place / _MANIFEST, manifest)
    return place


def _shards(base: str | os.PathLike[str], weights: Weights, pack: Callable[[Array, Array], bytes]) -> Iterator[list[_Change]]:
    """The tensors that changed, packed, as many as go into a file."""
    old = {tensor.name: tensor for _, _, tensors in read(Path(base)) for tensor in tensors}
    left, changes, size = set(old), list[_Change](), 0
    for file in files(weights, {}):
        if not file.name.endswith(".safetensors"):
            continue
        data = mapped(file.data) if isinstance(file.data, Path) else np.frombuffer(file.data, np.uint8)
        for new in parse(file.name, data)[1]:
            before = old.get(new.name)
            if before is None or (before.dtype, before.shape) != (new.dtype, new.shape):
                raise ValueError(f"tensor {new.name[:80]!r}, {new.dtype} of shape {new.shape}: the older version has none like it")
            left.discard(new.name)
            if np.array_equal(before.data, new.data):
                continue
            packed = pa.Codec("zstd", compression_level=1).compress(pack(before.data, new.data), asbytes=True)
            changes.append(_Change(new, packed, chunks.digest(np.ascontiguousarray(new.data)).hex()))
            if (size := size + len(packed)) >= SHARD:
                yield changes
                changes, size = [], 0
    if left:
        raise ValueError(f"{len(left)} tensors of the older version are missing, {min(left)[:80]!r} for one")
    if changes:
        yield changes


def _xor(old: Array, new: Array) -> bytes:
    return (old ^ new).tobytes()


def _overwrite(old: Array, new: Array) -> bytes:
    """Count and positions of the bytes that changed, and their new values."""
    if len(new) >= 1 << 32:
        raise ValueError(f"a tensor of {len(new)} bytes: positions of overwrite have 32 bits, so use xor")
    at = np.flatnonzero(old != new)
    return np.array([len(at)], "<u4").tobytes() + at.astype("<u4").tobytes() + new[at].tobytes()


def _save(path: Path, changes: list[_Change], metadata: dict[str, str] | None) -> None:
    save_file({c.tensor.name: np.frombuffer(c.packed, np.uint8) for c in changes}, path, metadata)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _commit(path: Path, document: Any) -> None:
    part = path.with_name(f".{path.name}.tmp")
    with open(part, "w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


@dataclass(frozen=True)
class _Patch:
    """How a tensor's bytes change; of a version that is read."""

    packed: Array
    checksum: str
    algorithm: str
    encoding: str

    def apply(self, name: str, old: Array) -> Array:
        size = len(old)
        if self.encoding == "xor":
            plain = self._plain(name, size)
            if len(plain) != size:
                raise Damaged(f"tensor {name[:80]!r}: {len(plain)} bytes in place of {size}")
            new = old ^ plain
        else:
            plain = self._plain(name, 4 + 5 * size)
            count = int.from_bytes(plain[:4].tobytes(), "little")
            if len(plain) != 4 + 5 * count or count > size:
                raise Damaged(f"tensor {name[:80]!r}: {count} positions in {len(plain)} bytes")
            at = np.frombuffer(plain[4 : 4 + 4 * count].tobytes(), "<u4")
            if count and int(at.max()) >= size:
                raise Damaged(f"tensor {name[:80]!r}: a position behind byte {size}")
            new = np.array(old)
            new[at] = plain[4 + 4 * count :]
        found = chunks.digest(new).hex() if self.algorithm == "xxh3-128" else f"{zlib.adler32(new.tobytes()):08x}"
        if found != self.checksum:
            raise Damaged(f"tensor {name[:80]!r} has another checksum: the delta is damaged, or the base is another version")
        return new

    def _plain(self, name: str, limit: int) -> Array:
        try:
            with pa.input_stream(pa.BufferReader(self.packed.tobytes()), compression="zstd") as stream:
                plain = stream.read(limit + 1)
        except OSError as error:
            raise Damaged(f"tensor {name[:80]!r}: {error}") from None
        return np.frombuffer(plain, np.uint8)


def read_slime(folder: str | os.PathLike[str], version: int, base: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write the checkpoint that a version in slime's layout leads to from base into a new folder; the folder. Damaged."""
    place = Path(folder, f"weight_v{version:06}")
    metadata = _load(place / _INDEX).get("metadata", {})
    try:
        told = int(metadata["version"]), metadata["compression_format"]
        encoding, algorithm = metadata["delta_encoding"], metadata["checksum_format"]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{place}: {error!r}") from None
    if told != (version, "zstd") or encoding not in ("xor", "overwrite") or algorithm not in ("xxh3-128", "adler32"):
        raise Damaged(f"{place}: version {told[0]}, {told[1]}, {encoding}, {algorithm}")
    patches: dict[str, _Patch] = {}
    for path in sorted(place.glob("*.safetensors")):
        header, tensors = parse(path.name, mapped(path))
        checksums = json.loads(header[8:]).get("__metadata__", {})
        patches.update({t.name: _Patch(t.data, str(checksums.get(t.name)), algorithm, encoding) for t in tensors})
    return _patched(Path(base), patches, Path(out))


def read_skyrl(folder: str | os.PathLike[str], version: int, base: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """The same for a version in SkyRL's layout."""
    place = Path(folder, f"delta-{version:08}")
    manifest = _load(place / _MANIFEST)
    try:
        if int(manifest["version"]) != version:
            raise Damaged(f"{place}: version {manifest['version']}")
        payloads = {str(name): {t.name: t for t in parse(name, mapped(_within(place, str(name))))[1]} for name in manifest["payload_files"]}
        patches = {
            str(r["name"]): _Patch(payloads[r["payload_file"]][r["payload_key"]].data, str(r["checksum"]), "xxh3-128", "xor")
            for r in manifest["tensors"]
            if r.get("checksum_algorithm", "xxh3-128") == "xxh3-128"
        }
        if len(patches) != len(manifest["tensors"]):
            raise Damaged(f"{place}: tensors twice, or with checksums that are not xxh3-128")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{place}: {error!r}") from None
    return _patched(Path(base), patches, Path(out))


def _within(place: Path, name: str) -> Path:
    if Path(name).name != name:
        raise Damaged(f"{place}: a file called {name[:140]!r}")
    return place / name


def _load(path: Path) -> Any:
    if path.stat().st_size > _MAX_TEXT:
        raise Damaged(f"{path} has more than {_MAX_TEXT} bytes")
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise Damaged(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise Damaged(f"{path} is no object")
    return document


def _patched(base: Path, patches: Mapping[str, _Patch], out: Path) -> Path:
    """The base's files with changed tensors, one of which is in memory at once. The folder appears whole or not at all."""
    if out.exists():
        raise FileExistsError(f"{out} exists")
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial", dir=out.parent))
    try:
        left = set(patches)
        for name, data, tensors in read(base):
            with open(partial / name, "xb") as file:
                file.write(data[: len(data) - sum(len(t.data) for t in tensors)].data)
                for tensor in tensors:
                    left.discard(tensor.name)
                    patch = patches.get(tensor.name)
                    file.write((tensor.data if patch is None else patch.apply(tensor.name, tensor.data)).data)
        if left:
            raise Damaged(f"the base has no tensor {min(left)[:80]!r}: it is another one")
        for path in base.iterdir() if base.is_dir() else ():
            if path.is_file() and path.suffix != ".safetensors" and not path.name.startswith("."):
                shutil.copyfile(path, partial / path.name)
        partial.chmod(0o755)
        os.replace(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return out
