"""Changed elements of torch tensors, read from the files that the side-car writes.

A file is in the safetensors format. It has two tensors for each tensor NAME of which elements differ from an older version: NAME:at with
the places of the elements in the flat tensor, rising, and NAME:to with their new values. Its metadata name the shape of the whole tensor.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from .checkpoint import TORCH, Tensor, parse
from .columns import Array
from .errors import Damaged

__all__ = ["Patch", "read", "verify"]

_PIECE = 16 << 20


class Patch(NamedTuple):
    """The elements of one tensor that change."""

    name: str
    shape: tuple[int, ...]
    places: torch.Tensor
    values: torch.Tensor


def verify(files: Mapping[str | Path, str]) -> None:
    """Check the SHA-256 of each file. Damaged where one has another."""
    for path, digest in files.items():
        found = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(_PIECE):
                found.update(piece)
        _same(path, found.hexdigest(), digest)


def _same(path: str | Path, found: str, digest: str) -> None:
    if found != digest:
        raise Damaged(f"{path} has the SHA-256 {found}, and not {digest}")


def read(files: Mapping[str, str]) -> list[Patch]:
    """The changes in files, whose SHA-256 stand beside their paths. Damaged unless all is as it was written."""
    patches: list[Patch] = []
    for path, digest in files.items():
        data = np.fromfile(path, np.uint8)
        _same(path, hashlib.sha256(data.data).hexdigest(), digest)
        patches += _parsed(path, data)
    return patches


def _parsed(path: str, data: Array) -> Iterator[Patch]:
    header, told = parse(path, data)
    tensors = {tensor.name: _torch(path, tensor) for tensor in told}
    shapes: dict[str, str] = json.loads(header[8:]).get("__metadata__", {})
    if set(tensors) != {f"{name}:{what}" for name in shapes for what in ("at", "to")}:
        raise Damaged(f"{path}: places, values and shapes are not those of the same tensors")
    for name, text in shapes.items():
        patch = Patch(name, tuple(json.loads(text)), tensors[f"{name}:at"], tensors[f"{name}:to"])
        places = patch.places
        if places.dtype != torch.int32 or places.ndim != 1 or patch.values.shape != places.shape:
            raise Damaged(f"{path}: tensor {name[:80]!r}: {places.dtype} of {places.shape} for values of {patch.values.shape}")
        elements = math.prod(patch.shape)
        if len(places) and not (0 <= int(places[0]) <= int(places[-1]) < elements and bool((places[1:] > places[:-1]).all())):
            raise Damaged(f"{path}: tensor {name[:80]!r}: places do not rise within {elements} elements")
        yield patch


def _torch(path: str, tensor: Tensor) -> torch.Tensor:
    kind = getattr(torch, TORCH.get(tensor.dtype, ""), None)
    if kind is None:
        raise Damaged(f"{path}: tensor {tensor.name[:80]!r} has elements of {tensor.dtype}, which torch {torch.__version__} lacks")
    return torch.from_numpy(tensor.data).view(kind).view(tensor.shape)
