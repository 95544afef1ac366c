"""Deltas: what is made of arrays and files comes back exactly, and whatever is damaged is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rondo
from rondo import chunks, delta, weights

pytest.importorskip("xxhash")

KINDS = [np.uint8, np.int8, np.uint16, np.float16, np.int32, np.float32, np.uint64, np.float64]
RNG = np.random.default_rng(3)


def model(size: int) -> dict[str, Any]:
    return {np.dtype(kind).name: RNG.integers(0, 256, size * np.dtype(kind).itemsize, np.uint8).view(kind) for kind in KINDS}


def changed(tensors: dict[str, Any], share: float) -> dict[str, Any]:
    new = {name: value.copy() for name, value in tensors.items()}
    for value in new.values():
        raw = value.view(np.uint8)
        raw[RNG.random(len(raw)) < share] += np.uint8(RNG.integers(1, 3))
    return new


def folder(path: Path, tensors: dict[str, Any], shard: int = weights.SHARD) -> Path:
    path.mkdir()
    for file in weights.files(tensors, {"format": "pt"}, shard):
        assert isinstance(file.data, bytes)
        (path / file.name).write_bytes(file.data)
    return path


def encoded(base: Path, new: weights.Weights) -> bytes:
    out = io.BytesIO()
    delta.encode(base, new, out, {"format": "pt"})
    return out.getvalue()


def applied(base: Path, data: bytes, out: Path) -> dict[str, bytes]:
    (out.parent / f"{out.name}.rondodelta").write_bytes(data)
    return {p.name: p.read_bytes() for p in delta.apply(base, out.parent / f"{out.name}.rondodelta", out).iterdir()}


@pytest.mark.parametrize("share", [0, 1e-4, 0.02, 0.3, 1])
def test_what_changed_comes_back(tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHUNK", 4096)
    tensors = model(2500)
    base = folder(tmp_path / "base", tensors)
    new = changed(tensors, share)
    new["added"], new["scalar"], new["empty"] = np.arange(5.0), np.array(2.5), np.zeros((0, 3), np.float32)
    del new["int8"]
    want = folder(tmp_path / "want", new)
    assert applied(base, encoded(base, new), tmp_path / "a") == {p.name: p.read_bytes() for p in want.iterdir()}
    assert encoded(base, want) == encoded(base, new)  # files or arrays are the same


def test_a_chain_in_shards(tmp_path: Path) -> None:
    tensors = model(300)
    base = folder(tmp_path / "0", tensors, 4000)
    for i in range(1, 8):
        tensors = changed(tensors, 0.01)
        want = folder(tmp_path / f"want{i}", tensors, 4000 + 500 * (i % 3))
        made = tmp_path / str(i)
        assert applied(base, encoded(base, want), made) == {p.name: p.read_bytes() for p in want.glob("*.safetensors")}
        base = made


def test_torch_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"w": torch.randn(300, 20).to(torch.bfloat16), "t": torch.randn(6, 7).t()}
    base = folder(tmp_path / "base", state)
    state["w"][::9] *= 1.01
    want = folder(tmp_path / "want", state)
    assert applied(base, encoded(base, state), tmp_path / "a") == {p.name: p.read_bytes() for p in want.iterdir()}


def test_differences_of_all_sizes() -> None:
    edges = [0, 1, 2, 14, 15, 16, 17, 127, 128, 255]
    for kind in (np.uint8, np.uint16, np.uint32, np.uint64):
        top = np.iinfo(kind).max
        values = np.array([*edges, *(top - e for e in edges), top // 2, top // 2 + 1], kind)
        old = np.zeros(1000, kind)
        new = old.copy()
        new[:: 1000 // len(values)][: len(values)] = values
        for a, b in ((old, new), (new, old), (new, new[::-1].copy())):
            before, after = a.view(np.uint8), b.view(np.uint8)
            frame = chunks.changed(before, after, a.itemsize, chunks.digest(after))
            data = before.copy()
            assert chunks.apply(frame, data, a.itemsize, True) == chunks.digest(after) and np.array_equal(data, after)


def test_one_bit_or_the_rest_of_a_delta_is_lost(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"few": np.arange(90, dtype=np.float32), "all": RNG.integers(0, 256, 40, np.uint8), "same": np.ones(3)}
    base = tmp_path / "base.safetensors"
    save_file(tensors, base)
    tensors["few"][[3, 50]], tensors["all"] = 7, tensors["all"][::-1].copy()
    data = encoded(base, tensors)
    want = applied(base, data, tmp_path / "whole")
    refused = 0
    for i in range(len(data)):
        for j, damaged in enumerate((data[:i], data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])):
            try:
                assert applied(base, damaged, tmp_path / f"{i}-{j}") == want
            except rondo.Damaged:
                refused += 1
                assert not (tmp_path / f"{i}-{j}").exists()
    assert refused > 1.9 * len(data)
    assert not list(tmp_path.glob(".*partial*"))
    other = tmp_path / "other.safetensors"
    save_file({**load_file(base), "few": np.zeros(90, np.float32)}, other)
    with pytest.raises(rondo.Damaged, match="another one"):
        applied(other, data, tmp_path / "other")
    with pytest.raises(FileExistsError):
        applied(base, data, tmp_path / "whole")
