"""Deltas in the layouts of slime and SkyRL: field by field, by way of SkyRL's own reader, and back."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors import deserialize
from safetensors.numpy import load_file, save_file

import rondo
from rondo import layouts

xxhash = pytest.importorskip("xxhash")

#: Where SkyRL's package is found: unpacked into a folder, since installing it brings ray and torch.
SKYRL = "RONDO_SKYRL"
READER = "skyrl/backends/skyrl_train/weight_sync/delta"


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Path, Path]:
    """Two checkpoints of two files, with tensors that change a little, entirely and not at all."""
    rng = np.random.default_rng(5)
    tensors: dict[str, Any] = {"few": rng.standard_normal((300, 40)).astype(np.float16), "all": rng.integers(0, 255, 999, np.uint8)}
    same: dict[str, Any] = {"same": np.arange(8, dtype=np.int64), "scalar": np.array(1, np.float32)}
    paths = tmp_path / "v1", tmp_path / "v2"
    for path in paths:
        path.mkdir()
        save_file(tensors, path / "model-1.safetensors", {"format": "pt"})
        save_file(same, path / "model-2.safetensors")
        (path / "config.json").write_text("{}")
        tensors = {"few": tensors["few"].copy(), "all": tensors["all"][::-1].copy()}
        tensors["few"][7::50] *= np.float16(1.01)
    return paths


def same(made: Path, want: Path) -> bool:
    return {p.name: p.read_bytes() for p in made.iterdir()} == {p.name: p.read_bytes() for p in want.iterdir()}


def content(path: Path) -> dict[str, bytes]:
    return {f"{p.name}/{name}": value.tobytes() for p in path.glob("*.safetensors") for name, value in load_file(p).items()}


def unpacked(data: bytes) -> bytes:
    return bytes(pa.input_stream(pa.BufferReader(data), compression="zstd").read())


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_slime_field_by_field(versions: tuple[Path, Path], tmp_path: Path, encoding: str) -> None:
    old, new = versions
    place = layouts.write_slime(tmp_path / "deltas", 7, old, new, encoding)
    assert place.name == "weight_v000007"
    assert sorted(p.name for p in place.iterdir()) == ["model-00000-of-00001.safetensors", "model.safetensors.index.json"]
    assert json.loads((place / "model.safetensors.index.json").read_text()) == {
        "metadata": {
            "version": "000007",
            "base_version": "000006",
            "delta_encoding": encoding,
            "compression_format": "zstd",
            "checksum_format": "xxh3-128",
        },
        "weight_map": {"few": "model-00000-of-00001.safetensors", "all": "model-00000-of-00001.safetensors"},
    }
    data = (place / "model-00000-of-00001.safetensors").read_bytes()
    told = dict(deserialize(data))  # type: ignore[no-untyped-call]
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    before, after = load_file(old / "model-1.safetensors"), load_file(new / "model-1.safetensors")
    assert told.keys() == metadata.keys() == {"few", "all"}
    for name, tensor in told.items():
        assert tensor["dtype"] == "U8"
        is_, was = np.frombuffer(after[name].tobytes(), np.uint8), np.frombuffer(before[name].tobytes(), np.uint8)
        at = np.flatnonzero(is_ != was).astype("<u4")
        plain = (is_ ^ was).tobytes() if encoding == "xor" else len(at).to_bytes(4, "little") + at.tobytes() + is_[at].tobytes()
        assert unpacked(bytes(tensor["data"])) == plain
        assert metadata[name] == xxhash.xxh3_128(is_.tobytes()).hexdigest()
    assert same(layouts.read_slime(tmp_path / "deltas", 7, old, tmp_path / "out"), new)


def test_skyrl_field_by_field(versions: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = versions
    place = layouts.write_skyrl(tmp_path / "deltas", 1, old, new)
    payload = "delta-rank00000-file000000.safetensors"
    assert place.name == "delta-00000001" and sorted(p.name for p in place.iterdir()) == [payload, "manifest.json"]
    manifest = json.loads((place / "manifest.json").read_text())
    after, held = load_file(new / "model-1.safetensors"), load_file(place / payload)
    records = {
        name: {
            "name": name,
            "dtype": {"few": "float16", "all": "uint8"}[name],
            "shape": list(after[name].shape),
            "uncompressed_num_bytes": after[name].nbytes,
            "compressed_num_bytes": len(held[name]),
            "payload_file": payload,
            "payload_key": name,
            "checksum": xxhash.xxh3_128(after[name].tobytes()).hexdigest(),
            "checksum_algorithm": "xxh3-128",
        }
        for name in ("few", "all")
    }
    assert {record["name"]: record for record in manifest.pop("tensors")} == records
    assert manifest == {
        "version": 1,
        "base_version": 0,
        "total_uncompressed_num_bytes": sum(value.nbytes for value in after.values()),
        "total_compressed_num_bytes": sum(len(value) for value in held.values()),
        "payload_files": [payload],
    }
    assert same(layouts.read_skyrl(tmp_path / "deltas", 1, old, tmp_path / "out"), new)


def test_skyrls_own_classes(versions: tuple[Path, Path], tmp_path: Path) -> None:
    """The published package's reader brings its copy of a checkpoint to our versions, and we read what its publisher writes."""
    root = Path(os.environ.get(SKYRL, "/nowhere"))
    if not (root / READER).is_dir():
        pytest.skip(f"set {SKYRL} to the folder of: pip install --no-deps --ignore-requires-python --target FOLDER skyrl==0.4.0")
    for needed in ("torch", "zstandard"):
        pytest.importorskip(needed)
    package = READER.replace("/", ".")
    for name in (package.rsplit(".", i)[0] for i in range(len(package.split(".")))):
        sys.modules.setdefault(name, types.ModuleType(name))  # these import ray
    for name in ("payload", "checkpoint"):
        spec = importlib.util.spec_from_file_location(f"{package}.{name}", root / READER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    old, new = versions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "SHARD", 1)
        layouts.write_skyrl(tmp_path / "deltas", 1, old, new)
        layouts.write_skyrl(tmp_path / "deltas", 2, new, old)
        layouts.write_skyrl(tmp_path / "deltas", 3, old, new)
    store = module.LocalCheckpointStore(str(old), str(tmp_path / "local"))
    for version, want in ((1, new), (3, new)):
        store.fetch(version, sync_dir=str(tmp_path / "deltas"))
        store.validate_ready(version)
        assert content(tmp_path / "local/weights") == content(want)

    torch = importlib.import_module("torch")
    publisher = module.DeltaCheckpointPublisher(str(old), str(tmp_path / "theirs"), str(tmp_path / "staging"))
    changed = load_file(new / "model-1.safetensors")
    publisher.publish(publisher.create_delta_files((name, torch.from_numpy(value)) for name, value in changed.items()))
    assert same(layouts.read_skyrl(tmp_path / "theirs", 1, old, tmp_path / "out"), new)
    ours = layouts.write_skyrl(tmp_path / "ours", 1, old, new)
    told = [json.loads((place / "manifest.json").read_text()) for place in (ours, tmp_path / "theirs/delta-00000001")]
    for manifest in told:
        del manifest["total_compressed_num_bytes"]  # versions of zstd differ
        manifest["tensors"] = sorted(({**t, "compressed_num_bytes": 0} for t in manifest["tensors"]), key=lambda t: t["name"])
    assert told[0] == told[1]


@pytest.mark.parametrize("layout", ["slime", "skyrl"])
def test_what_does_not_fit_a_layout(versions: tuple[Path, Path], tmp_path: Path, layout: str) -> None:
    old, new = versions
    write, read = getattr(layouts, f"write_{layout}"), getattr(layouts, f"read_{layout}")
    tensors = {**load_file(new / "model-1.safetensors"), **load_file(new / "model-2.safetensors")}
    for i, other in enumerate(
        (
            {**tensors, "added": np.ones(1)},
            {name: value for name, value in tensors.items() if name != "same"},
            {**tensors, "few": tensors["few"].reshape(-1)},
            {**tensors, "all": tensors["all"].view(np.int8)},
        )
    ):
        with pytest.raises(ValueError, match="older version"):
            write(tmp_path / f"refused{i}", 1, old, other)
    place = write(tmp_path / "deltas", 1, old, new)
    with pytest.raises(rondo.Damaged, match="another checksum"):
        read(tmp_path / "deltas", 1, new, tmp_path / "out")
    payload = next(place.glob("*.safetensors"))
    whole = payload.read_bytes()
    for i in range(0, len(whole), max(1, len(whole) // 200)):
        for damaged in (whole[:i], whole[:i] + bytes([whole[i] ^ 16]) + whole[i + 1 :]):
            payload.write_bytes(damaged)
            try:
                made = read(tmp_path / "deltas", 1, old, tmp_path / f"out{i}-{len(damaged)}")
            except (rondo.Damaged, ValueError):
                continue
            assert same(made, new)
    assert not list(tmp_path.glob(".out*"))
