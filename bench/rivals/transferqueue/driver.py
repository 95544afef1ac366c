"""TransferQueue: the key-value interface that verl uses, over SimpleStorage. The controller and the storage units are actors of ray."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue
import workload
from tensordict import TensorDict

#: Groups that are put at once.
AT_ONCE = 8
PARTITION = "train"
#: As verl names them.
FIELDS = ("input_ids", "rollout_log_probs", "loss_mask")


def server(settings: dict[str, Any]) -> list[str]:
    """The command of the process that holds what is put."""
    (Path(settings["dir"]) / "address").unlink(missing_ok=True)  # that of a process that was killed
    return [sys.executable, __file__, settings["dir"]]


def serve(folder: Path) -> None:
    """Hold a ray of one machine, with a processor for the controller and for each of the two storage units."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    started = ray.init(
        "local", num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20, _temp_dir=str(folder)
    )
    transfer_queue.init()
    part = folder / "part"
    part.write_text(started.address_info["address"])
    part.rename(folder / "address")
    threading.Event().wait()


async def connect(settings: dict[str, Any]) -> None:
    address = Path(settings["dir"]) / "address"
    while not address.exists():
        await asyncio.sleep(0.05)
    await asyncio.to_thread(ray.init, address.read_text(), log_to_driver=False)
    await asyncio.to_thread(transfer_queue.init)


class Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    async def open(self) -> None:
        await connect(self.settings)

    async def put(self, number: int, group: list[workload.Trajectory]) -> None:
        columns = {
            "input_ids": torch.tensor([t.ids for t in group]), "loss_mask": torch.tensor([t.mask for t in group], dtype=torch.int64),
            "rollout_log_probs": torch.tensor([t.logprobs for t in group], dtype=torch.float32),
            "rm_scores": torch.tensor([[t.reward] for t in group]),
        }  # fmt: skip
        keys = [f"g{number}_{i}_0" for i in range(len(group))]
        tags = [{"status": "success"}] * len(keys)
        await transfer_queue.async_kv_batch_put(
            keys=keys, partition_id=PARTITION, fields=TensorDict(columns, batch_size=len(keys)), tags=tags
        )


class Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        #: Where the trainer saves what is in the queue beside its own state, as verl's asynchronous trainers do; None where it does not.
        self.saved = Path(settings["dir"]) / "checkpoint" if settings["variant"] == "checkpoint" else None

    async def open(self) -> None:
        await connect(self.settings)
        if self.saved and self.saved.exists():
            await asyncio.to_thread(transfer_queue.load_checkpoint, self.saved)

    async def batch(self) -> list[tuple[Any, Any, Any]]:
        while True:
            listed = (await transfer_queue.async_kv_list(partition_id=PARTITION)).get(PARTITION, {})
            keys = [key for key, tag in listed.items() if tag.get("status") == "success"][: workload.BATCH]
            if len(keys) == workload.BATCH or (keys and self.settings["after"]):  # nothing follows behind a restart
                break
            await asyncio.sleep(0.01)
        data = await transfer_queue.async_kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=list(FIELDS))
        await transfer_queue.async_kv_clear(keys=keys, partition_id=PARTITION)
        return list(zip(*(data[name].unbind() for name in FIELDS), strict=True))

    async def checkpointed(self) -> None:
        """The trainer's state is saved."""
        if self.saved:
            await asyncio.to_thread(transfer_queue.save_checkpoint, self.saved)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
