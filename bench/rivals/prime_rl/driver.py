"""prime-rl: the transport of its micro-batches, from a checkout (RONDO_PRIME_RL), which is not on PyPI. One sample is one micro-batch."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import workload

#: Groups that are put at once.
AT_ONCE = 1
SOURCE = Path(os.environ["RONDO_PRIME_RL"]) / "src"

# The package imports the trainer's whole configuration, of which the transport needs a name for an annotation.
sys.path.insert(0, str(SOURCE))
package, configs = ModuleType("prime_rl.transports.rollouts"), ModuleType("prime_rl.configs.shared")
package.__path__ = [str(SOURCE / "prime_rl/transports/rollouts")]
configs.ZMQTransportConfig = SimpleNamespace
sys.modules.update({package.__name__: package, "prime_rl.configs": ModuleType("prime_rl.configs"), configs.__name__: configs})

from prime_rl.transports.rollouts import filesystem, zmq
from prime_rl.transports.rollouts.types import MicroBatch


def ends(settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The module of a transport, and what its ends are made with."""
    if settings["variant"] == "filesystem":
        return filesystem, {}
    # The default of 10 messages is what a trainer may be behind; more are dropped.
    return zmq, {"transport": SimpleNamespace(host="127.0.0.1", port=settings["port"], hwm=1000)}


class Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        module, given = ends(settings)
        kind = module.FileSystemMicroBatchSender if module is filesystem else module.ZMQMicroBatchSender
        self.sender = kind(Path(settings["dir"]), 1, current_step=0, **given)
        self.waiting: list[Any] = []

    async def open(self) -> None:
        if hasattr(self.sender, "_wait_for_ready"):
            await self.sender._wait_for_ready()
            await asyncio.sleep(1)  # READY takes another connection than the subscription, before which what is sent is dropped

    async def put(self, number: int, group: list[workload.Trajectory]) -> None:
        self.waiting += map(self.packed, group)
        if len(self.waiting) == workload.BATCH:
            await self.sender.send([self.waiting])
            self.waiting = []

    def packed(self, t: workload.Trajectory) -> Any:
        n = len(t.ids)
        return MicroBatch(
            input_ids=t.ids, loss_mask=t.mask, inference_logprobs=t.logprobs,
            advantages=[t.reward - 0.5 if sampled else 0.0 for sampled in t.mask],
            position_ids=list(range(n)), sequence_lengths=[n], temperatures=[1.0] * n, env_names=["bench"], seq_lens=[n],
        )  # fmt: skip


class Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        module, given = ends(settings)
        kind = module.FileSystemMicroBatchReceiver if module is filesystem else module.ZMQMicroBatchReceiver
        self.receiver = kind(Path(settings["dir"]), 0, current_step=settings["after"], **given)

    async def open(self) -> None:
        pass

    async def batch(self) -> list[tuple[Any, Any, Any]]:
        while not self.receiver.can_receive():
            await asyncio.sleep(0.002)
        return [(m.input_ids, m.inference_logprobs, m.loss_mask) for m in await asyncio.to_thread(self.receiver.receive)]
