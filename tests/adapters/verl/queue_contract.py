"""TransferQueue's own client and controller over rondo.transfer_queue: every process is killed, and a new controller has all fields."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict

KEYS = [f"u{i}_0_0" for i in range(6)]


def start() -> None:
    """A controller, and a client whose fields lie in Rondo's store."""
    import rondo.transfer_queue

    rondo.transfer_queue.LARGE = 200  # so that one put makes several objects
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    tq.init(OmegaConf.create({"backend": {"storage_backend": "Rondo", "Rondo": {"dir": os.environ["RONDO_DIR"]}}}))


def fields() -> TensorDict:
    """Rows of every kind that trainers put: of different lengths, of one length, numbers, texts, nested objects."""
    torch.manual_seed(3)
    lengths = [3, 1, 5, 2, 4, 7]
    return TensorDict(
        {
            "input_ids": torch.nested.as_nested_tensor([torch.arange(n) + 10 * n for n in lengths], layout=torch.jagged),
            "logprobs": torch.nested.as_nested_tensor([-torch.rand(n) for n in lengths], layout=torch.jagged),
            "experts": torch.arange(6 * 2 * 3, dtype=torch.int16).reshape(6, 2, 3),
            "half": torch.arange(6, dtype=torch.bfloat16) / 3,
            "uid": NonTensorStack(*(f"u{i}" for i in range(6))),
            "more": NonTensorStack(*({"reward": i / 4, "ids": np.arange(i), "said": ["ä", None]} for i in range(6))),
        },
        batch_size=6,
    )


def rows(found: TensorDict) -> list[dict[str, Any]]:
    """The same, row by row, as plain Python."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return (str(value.dtype), value.tolist())
        if isinstance(value, np.ndarray):
            return (str(value.dtype), value.tolist())
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return value

    columns = {}
    for name in sorted(found.keys()):
        column = found[name]
        columns[name] = [plain(v) for v in (column.unbind() if isinstance(column, torch.Tensor) else list(column))]
    return [{name: column[i] for name, column in columns.items()} for i in range(len(found))]


@ray.remote
class Writer:
    """Another process, which puts a field of its own and changes one."""

    def put(self) -> None:
        import verl  # noqa: F401, it imports what VERL_USE_EXTERNAL_MODULES names

        tq.init()
        added = TensorDict({"advantages": torch.arange(6.0)}, batch_size=6)
        tq.kv_batch_put(keys=KEYS, partition_id="train", fields=added)
        tq.kv_put(key=KEYS[0], partition_id="train", fields={"half": torch.tensor(9, dtype=torch.bfloat16)}, tag={"status": "changed"})


def put(folder: Path) -> None:
    start()
    tq.kv_batch_put(keys=KEYS, partition_id="train", fields=fields(), tags=[{"status": "success"} for _ in KEYS])
    writer = Writer.remote()
    ray.get(writer.put.remote())
    ray.kill(writer)
    assert rows(tq.kv_batch_get(keys=KEYS, partition_id="train")) == expected()
    tq.save_checkpoint(folder / "queue")
    tq.kv_clear(keys=KEYS[:3], partition_id="train")  # trained on after the checkpoint
    tq.kv_batch_put(keys=["late_0_0"], partition_id="train", fields=TensorDict({"advantages": torch.zeros(1)}, batch_size=1))
    (folder / "put").touch()
    time.sleep(600)


def expected() -> list[dict[str, Any]]:
    """The rows after both processes."""
    given = rows(fields())
    for i, row in enumerate(given):
        row["advantages"] = ("torch.float32", float(i))
    given[0]["half"] = ("torch.bfloat16", 9.0)
    return given


def get(folder: Path) -> None:
    """In a new controller, which knows nothing but the checkpoint."""
    start()
    tq.load_checkpoint(folder / "queue")
    listed = tq.kv_list("train")["train"]
    assert sorted(listed) == KEYS and listed[KEYS[0]]["status"] == "changed", listed
    assert rows(tq.kv_batch_get(keys=KEYS, partition_id="train")) == expected()
    found = tq.kv_batch_get(keys=[KEYS[4], KEYS[1]], partition_id="train", select_fields=["uid", "input_ids"])
    assert [row["uid"] for row in rows(found)] == ["u4", "u1"] and found["input_ids"].unbind()[1].tolist() == [10]
    for file in objects(Path(os.environ["RONDO_DIR"])):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.chmod(0o600)
        file.write_bytes(data)
    try:
        tq.kv_batch_get(keys=KEYS, partition_id="train")
    except Exception as error:
        assert "sha256" in str(error), error
        print(f"refused: {error}")
    else:
        raise AssertionError("damaged fields were read")
    tq.kv_clear(keys=KEYS, partition_id="train")
    assert not (tq.kv_list("train") or {}).get("train"), tq.kv_list()
    tq.close()


def objects(plane: Path) -> list[Path]:
    """The objects in the store of a plane that holds nothing else."""
    return list(plane.rglob("blobs/sha256/*/*"))


def main() -> None:
    from mended import binary

    from tests.conftest import Plane

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plane = Plane(binary(folder), folder / "plane")
        plane.start()
        try:
            variables = {**os.environ, "RONDO_DIR": str(plane.dir), "RAY_USAGE_STATS_ENABLED": "0"}
            variables["VERL_USE_EXTERNAL_MODULES"] = "rondo.transfer_queue"
            with subprocess.Popen([sys.executable, __file__, "put", name], env=variables, start_new_session=True) as first:
                while not (folder / "put").exists():
                    assert first.poll() is None, "the first trainer failed"
                    time.sleep(0.1)
                os.killpg(first.pid, signal.SIGKILL)
            checkpoint = sum(file.stat().st_size for file in (folder / "queue").rglob("*") if file.is_file())
            print(f"checkpoint of the queue: {checkpoint} bytes, without the fields")
            subprocess.run([sys.executable, __file__, "get", name], env=variables, check=True)
            plane.command("gc", "--delete")
            young = len(objects(plane.dir))
            for file in objects(plane.dir):
                os.utime(file, (time.time() - 25 * 3600,) * 2)
            plane.command("gc", "--delete")
            assert young > 3 and not objects(plane.dir), (young, objects(plane.dir))
            print(f"rondo gc spares {young} young objects of the queue, and deletes old ones")
        finally:
            plane.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"put": put, "get": get}[sys.argv[1]](Path(sys.argv[2]))
    else:
        main()
