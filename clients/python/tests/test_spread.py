"""Weights that lie in pieces on several processes of torch.distributed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import rondo

from .conftest import Plane, ending

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


pieces = {name: spread(tensor) for name, tensor in full.items()}  # in one order: it sends and receives
state = (pieces if rank else dict(reversed(pieces.items()))) | {"plain": torch.ones(2)}
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
dist.barrier()
dist.destroy_process_group()  # whose threads would abort a process that ends without the other one
print("done")
"""


def together(program: str, *arguments: str) -> None:
    """Run a program in two processes, which are told their rank."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), *arguments], cwd=CLIENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    said = []
    for process in processes:
        with ending(process):
            said.append(process.communicate(timeout=300)[0])
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    assert all(told.strip().endswith("done") for told in said), said


def test_pieces_of_two_processes_are_gathered(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch has no gloo")
    together(PROGRAM, str(tmp_path / "store"))


#: What each of two processes runs with FSDP2: the model's layers and the model itself are sharded, of sizes that two do not divide.
FSDP2 = """
import sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
import rondo

rank, store, dir, run, expected = int(sys.argv[1]), *sys.argv[2:6]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Embedding(11, 5), torch.nn.Linear(5, 3), torch.nn.LayerNorm(3)).to(torch.bfloat16)
model[2].register_buffer("count", torch.arange(3))
if rank == 0:
    torch.save(model.state_dict(), expected)
mesh = init_device_mesh("cpu", (2,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
state = model.state_dict()
assert any(isinstance(tensor, DTensor) for tensor in state.values()), state
with rondo.Client(dir, wait=60) as client:
    published = client.publish_weights(f"policy-{run}", state, run=run, version=1, through_step=0, timeout=60)
assert published == (None if rank else 1), published
dist.barrier()
dist.destroy_process_group()
print("done")
"""


if find_spec("torch") and find_spec("torch.distributed.tensor"):  # PyTorch 2.6 or later; Debian's has no fully_shard

    def test_a_model_of_fsdp2_is_published(own_plane: Plane, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        with rondo.Client(own_plane.dir, wait=60) as client:
            run = own_plane.open_run(client)
            expected = tmp_path / "expected"
            together(FSDP2, str(tmp_path / "store"), str(own_plane.dir), run, str(expected))
            version = client.published(f"policy-{run}")
            assert version is not None
            got, want = version.load("torch"), torch.load(expected)
        assert got.keys() == want.keys()
        assert all(torch.equal(got[name], tensor) and got[name].dtype == tensor.dtype for name, tensor in want.items()), got
