"""Weights that lie in pieces on several processes of torch.distributed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[1]

#: What each of two processes runs. Pieces are DTensors where torch has them (2.5 and later), and else what FSDP2's state_dict is
#: to its reader: a tensor without memory of its own whose full_tensor sends and receives.
PROGRAM = """
import sys
import numpy as np, torch, torch.distributed as dist
from safetensors.numpy import load
import rondo
from rondo import weights

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
full = {"b": torch.arange(12.0).reshape(6, 2), "a": torch.arange(8.0).to(torch.bfloat16)}


class Piece(torch.Tensor):
    @staticmethod
    def __new__(cls, whole):
        piece = torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=whole.dtype)
        piece.placements, piece.local = ("Shard(0)",), whole.chunk(2)[rank].clone().view(torch.uint8)
        return piece

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)

    def full_tensor(self):
        pieces = [torch.empty_like(self.local) for _ in range(2)]
        dist.all_gather(pieces, self.local)
        return torch.cat(pieces).view(self.dtype)


def spread(whole):
    try:
        from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    except ImportError:
        return Piece(whole)
    return distribute_tensor(whole, init_device_mesh("cpu", (2,)), [Shard(0)])


state = {name: spread(tensor) for name, tensor in (full if rank else dict(reversed(full.items()))).items()} | {"plain": torch.ones(2)}
try:
    list(weights.files(state, {}))
except ValueError as error:
    assert "tensor a: it lies in pieces on several processes" in str(error), error
else:
    raise AssertionError("the memory of a piece was read")

try:
    rondo.gather(state | {"meta": torch.ones(1, device="meta")})  # refused before the processes wait for each other
except ValueError as error:
    assert "tensor meta" in str(error), error
else:
    raise AssertionError("a tensor without memory was gathered")

whole = weights.whole(state)
if rank:
    assert whole is None, whole
else:
    assert all(torch.equal(whole[name], tensor) for name, tensor in full.items()), whole
    [file] = weights.files(whole, {})
    assert len(file.data) > 12 * 4 + 8 * 2
assert weights.whole({"plain": state["plain"]}) == {"plain": state["plain"]}
print("done")
"""


def test_pieces_of_two_processes_are_gathered(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch has no gloo")
    command = [sys.executable, "-c", PROGRAM]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], cwd=CLIENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    said = []
    for process in processes:
        with process:
            said.append(process.communicate(timeout=300)[0])
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    assert all(told.strip().endswith("done") for told in said), said
