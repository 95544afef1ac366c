"""Weights as safetensors files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json import dumps
from os import PathLike
from pathlib import Path
from typing import Any, Union

import numpy as np
from safetensors import TensorSpec, serialize

from .objects import MAX_OBJECT, MAX_STREAM
from .source import Content

__all__ = ["NAME", "SHARD", "File", "Weights", "files", "gather", "whole"]

#: What may be published: arrays or torch tensors by name, or a path.
Weights = Union[Mapping[str, Any], str, "PathLike[str]"]

#: Bytes of tensors in a file; more go into several files, as inference servers expect them.
SHARD = 512 << 20

#: What a file may be called.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class File:
    """One file of a version, under the name that an inference server looks for."""

    name: str
    data: Content  # bytes, or the path of a file that is read in pieces


@dataclass(frozen=True)
class _Tensor:
    name: str
    spec: TensorSpec
    keep: Any  # owns the memory that the spec points to


def files(weights: Weights, metadata: Mapping[str, str], shard: int = SHARD) -> Iterator[File]:
    """The files of some weights, one after the other, so that only one of them is in memory.

    shard: bytes of tensors in a file, unless one tensor alone is larger.
    """
    if not isinstance(weights, Mapping):
        return _read(Path(weights))
    if not weights:
        raise ValueError("there are no weights: the mapping is empty")
    for name in sorted(weights):  # before anything is sent
        _check(name, weights[name])
    return _write(weights, metadata, shard)


def _read(path: Path) -> Iterator[File]:
    paths = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")) if path.is_dir() else [path]
    if not any(p.suffix == ".safetensors" for p in paths):
        raise ValueError(f"{path}: no file ends in .safetensors")
    for p in paths:
        if not p.suffix and p.stat().st_size == 0:
            continue  # a mark that the folder is complete, as prime-rl leaves STABLE
        if not NAME.fullmatch(p.name) or not p.suffix.strip("."):
            raise ValueError(f"{p}: want a name of letters, digits and ._-, with an extension")
        if (size := p.stat().st_size) > MAX_STREAM:
            raise ValueError(f"{p}: {size} bytes are more than a file's {MAX_STREAM}: write it in shards")
        yield File(p.name, p)


def _write(weights: Mapping[str, Any], metadata: Mapping[str, str], shard: int) -> Iterator[File]:
    shards = _shards(weights, shard)
    marked = dict(metadata) or None
    if len(shards) == 1:
        yield File("model.safetensors", _serialize(weights, shards[0], marked))
        return
    index: dict[str, str] = {}
    for i, names in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        index.update(dict.fromkeys(names, file))
        yield File(file, _serialize(weights, names, marked))
    total = sum(_nbytes(weights[name]) for name in index)
    text = dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2, sort_keys=True)
    yield File("model.safetensors.index.json", text.encode())


def _shards(weights: Mapping[str, Any], shard: int) -> list[list[str]]:
    """Names by file: in order of name, each file as full as it may be."""
    shards: list[list[str]] = []
    room = 0
    for name in sorted(weights):
        size = _nbytes(weights[name])
        if size > MAX_OBJECT - (1 << 20):
            raise ValueError(f"tensor {name}: {size} bytes do not fit into a file of {MAX_OBJECT}")
        if not shards or size > room:
            shards.append([])
            room = shard
        shards[-1].append(name)
        room -= size
    return shards


def whole(weights: Weights) -> Weights | None:
    """Weights to publish. Those that lie in pieces on several processes are gathered, and None in all processes but that of rank 0."""
    if not isinstance(weights, Mapping) or not any(_is_spread(tensor) for tensor in weights.values()):
        return weights
    return gather(weights) or None


def gather(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The same weights with whole tensors, on the CPU of the process of rank 0; no weights at all in the others.

    weights: a state_dict with tensors that lie in pieces on the processes of torch.distributed (DTensor), as those of FSDP2 and of
    tensor parallelism do. Each process must call this, with the same names: they send each other the pieces of one tensor after the
    other, so that no process holds more than one whole tensor on its device.
    """
    torch = sys.modules["torch"]
    alone = not torch.distributed.is_initialized()
    for name in sorted(weights):  # before the processes wait for each other
        if not _is_spread(weights[name]):
            _check(name, weights[name])
        elif alone:
            raise ValueError(f"tensor {name}: it lies in pieces on several processes, and torch.distributed is not initialised")
    gathered = {}
    for name in sorted(weights):  # in one order on all of them
        tensor = weights[name]
        if _is_spread(tensor):
            tensor = tensor.full_tensor()
        if alone or torch.distributed.get_rank() == 0:
            gathered[name] = tensor.detach().cpu() if _is_torch(tensor) else tensor
    return gathered


def _is_spread(tensor: Any) -> bool:
    return _is_torch(tensor) and hasattr(tensor, "full_tensor") and hasattr(tensor, "placements")


def _nbytes(tensor: Any) -> int:
    if _is_torch(tensor):
        return int(tensor.numel() * tensor.element_size())
    return int(np.asarray(tensor).nbytes)


def _serialize(weights: Mapping[str, Any], names: list[str], metadata: dict[str, str] | None) -> bytes:
    tensors = [_tensor(name, weights[name]) for name in names]
    return bytes(serialize({t.name: t.spec for t in tensors}, metadata))


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _unfit(tensor: Any) -> str:
    """Why the memory of a torch tensor is not that of its elements, one after the other; nothing where it is."""
    torch = sys.modules["torch"]
    plain = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))
    if _is_spread(tensor):
        return "it lies in pieces on several processes: call rondo.gather(weights) on each of them"
    if type(tensor) not in plain:
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        return f"it is a {kind}, whose elements only its own library knows: gather it, or turn it into a plain tensor"
    if tensor.is_meta:
        return "it is on the device meta, so it has no elements"
    if tensor.is_quantized:
        return "it is quantised: dequantize() it"
    if tensor.layout is not torch.strided or getattr(tensor, "is_nested", False):
        return f"its layout is {tensor.layout}, want torch.strided: use to_dense()"
    if tensor.numel() == 0:
        return (
            "DeepSpeed has spread its elements over several processes: gather it (deepspeed.zero.GatheredParameters)"
            if hasattr(tensor, "ds_id")
            else ""
        )
    held = tensor.untyped_storage().nbytes() if hasattr(tensor, "untyped_storage") else tensor.storage().nbytes()
    reach = tensor.storage_offset() + 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    if held < reach * tensor.element_size():
        return f"its memory was given up ({held} bytes are left), as FSDP does between steps: gather it"
    return ""


def _check(name: str, tensor: Any) -> None:
    if _is_torch(tensor) and (why := _unfit(tensor)):
        raise ValueError(f"tensor {name}: {why}")


def _tensor(name: str, tensor: Any) -> _Tensor:
    if _is_torch(tensor):
        keep = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
        kind, pointer = str(keep.dtype).partition(".")[2], keep.data_ptr()
    else:
        keep = np.ascontiguousarray(tensor).reshape(np.shape(tensor))  # ascontiguousarray makes a vector of a scalar
        keep = keep.astype(keep.dtype.newbyteorder("<"), copy=False)
        kind, pointer = keep.dtype.name, keep.ctypes.data
    try:
        return _Tensor(name, TensorSpec(dtype=kind, shape=list(keep.shape), data_ptr=pointer, data_len=_nbytes(keep)), keep)
    except Exception as error:
        raise ValueError(f"tensor {name} of type {kind}: {error}") from None
