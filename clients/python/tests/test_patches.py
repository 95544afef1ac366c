"""Changed elements of tensors, without vLLM."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from rondo.errors import Damaged

torch = pytest.importorskip("torch")

from rondo import patches


def written(folder: Path, tensors: dict[str, Any], shapes: dict[str, list[int]], name: str = "changes-00001.safetensors") -> dict[str, str]:
    """A file as the side-car writes it: its SHA-256 by its path."""
    data = save(tensors, {name: json.dumps(shape) for name, shape in shapes.items()})
    (folder / name).write_bytes(data)
    return {str(folder / name): hashlib.sha256(data).hexdigest()}


def change(at: list[int], to: list[float], kind: Any = np.float32) -> dict[str, Any]:
    return {"w:at": np.array(at, np.int32), "w:to": np.array(to, kind)}


def test_what_has_changed_is_read_bit_for_bit(tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(1)
    old = {name: torch.randn(shape, generator=chance) for name, shape in {"w": (7, 11), "v": (5,), "same": (3,), "scalar": ()}.items()}
    new = {name: t.clone() for name, t in old.items()}
    new["w"][0, 0], new["w"][6, 10], new["v"][2], new["scalar"] = 1, -0.0, float("nan"), torch.tensor(2.0)
    tensors, shapes = dict[str, Any](), dict[str, list[int]]()
    for name, t in new.items():
        at = np.flatnonzero(t.numpy().reshape(-1).view(np.uint32) != old[name].numpy().reshape(-1).view(np.uint32))
        if len(at):
            tensors |= {f"{name}:at": at.astype(np.int32), f"{name}:to": t.numpy().reshape(-1)[at]}
            shapes[name] = list(t.shape)
    found = patches.read(written(tmp_path, tensors, shapes))
    assert sum(len(p.places) for p in found) == 4
    for patch in found:
        assert patch.shape == tuple(old[patch.name].shape)
        old[patch.name].view(-1).index_copy_(0, patch.places.long(), patch.values)
    for name, t in new.items():
        assert torch.equal(old[name].view(-1).view(torch.int32), t.view(-1).view(torch.int32)), name


@pytest.mark.parametrize(
    ("tensors", "shapes"),
    [
        (change([0, 6], [1, 2]), {"w": [2, 3]}),
        (change([-1, 2], [1, 2]), {"w": [2, 3]}),
        (change([2, 2], [1, 2]), {"w": [2, 3]}),
        (change([3, 2], [1, 2]), {"w": [2, 3]}),
        (change([1], [1, 2]), {"w": [2, 3]}),
        ({**change([1], [1]), "w:at": np.array([1])}, {"w": [2, 3]}),
        ({"w:at": np.array([1], np.int32)}, {"w": [2, 3]}),
        (change([1], [1]), {}),
        (change([1], [1]), {"w": [2, 3], "v": [2]}),
    ],
)
def test_changes_that_are_none_are_refused(tmp_path: Path, tensors: dict[str, Any], shapes: dict[str, list[int]]) -> None:
    files = written(tmp_path, tensors, shapes)
    with pytest.raises(Damaged):
        patches.read(files)


def test_a_wrong_digest_is_refused(tmp_path: Path) -> None:
    files = written(tmp_path, change([1], [1]), {"w": [2]})
    path = Path(next(iter(files)))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="SHA-256"):
        patches.read(files)
    with pytest.raises(Damaged, match="SHA-256"):
        patches.verify({path: files[str(path)]})
    patches.verify({path: hashlib.sha256(data).hexdigest()})
