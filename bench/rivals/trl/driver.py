"""TRL: the queue of its AsyncGRPOTrainer, which the worker's process fills and the trainer's dataset empties.

The worker is a child of the trainer, as in the package.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from itertools import islice
from typing import Any

import numpy as np
import workload
from accelerate import PartialState
from trl.experimental.async_grpo import async_rollout_worker
from trl.experimental.async_grpo.async_grpo_trainer import RolloutQueueDataset

#: The defaults of AsyncGRPOConfig: samples that the queue holds, and seconds after which a silent worker counts as dead.
MAXIMUM, STALE = 1024, 300.0


class Loop:
    """What runs in the worker's process. It puts finished samples, where the package's loop samples and scores them with vLLM."""

    def __init__(self, *, settings: dict[str, Any], rollout_buffer: Any, model_version_value: Any, metrics_queue: Any, **_: Any) -> None:
        self.queue, self.version, self.metrics = rollout_buffer, model_version_value, metrics_queue
        # A worker that is started again has nothing from before: it would sample anew.
        groups = [] if settings["after"] else workload.groups(settings["trajectories"], settings["tokens"])
        self.samples = [sample(t) for group in groups for t in group]

    def run(self) -> None:
        while not self.version.value:  # the trainer's first weights
            time.sleep(0.001)
        began = time.monotonic()
        for each in self.samples:
            each.enqueued_at = time.time()
            self.queue.put_nowait(each)
        self.metrics.put({"began": began, "ended": time.monotonic()})
        threading.Event().wait()  # it lives as long as its trainer


def sample(t: workload.Trajectory) -> async_rollout_worker.RolloutSample:
    """A trajectory as the worker puts it."""
    text = [{"role": "user", "content": ""}], [{"role": "assistant", "content": ""}]
    arrays = np.asarray(t.ids, np.int64), np.asarray(t.mask, np.int64), np.asarray(t.logprobs, np.float32)
    return async_rollout_worker.RolloutSample(*text, *arrays, t.reward - 0.5, 1, t.number // workload.GROUP, {"reward": t.reward})


class Worker(async_rollout_worker.AsyncRolloutWorker):
    _loop_cls = Loop


class Consumer:
    """It has no Producer beside it: its worker is the one."""

    def __init__(self, settings: dict[str, Any]) -> None:
        PartialState()  # the package's loggers need it
        async_rollout_worker.is_vllm_available = lambda: True  # only the loop that is left out needs vLLM
        self.worker = Worker(queue_maxsize=MAXIMUM, settings=settings)
        dataset = RolloutQueueDataset(
            self.worker.rollout_buffer, lambda: self.worker.model_version, self.worker.check_health, STALE, defaultdict(list)
        )
        self.samples = iter(dataset)

    async def open(self) -> None:
        await asyncio.to_thread(self.worker.start)

    async def produce(self) -> tuple[float, float]:
        """Let the worker begin; when it did, and when it had put all."""
        self.worker.update_model_version(1)
        told = await asyncio.to_thread(self.worker.metrics_queue.get)
        return told["began"], told["ended"]

    async def batch(self) -> list[tuple[Any, Any, Any]]:
        taken = await asyncio.to_thread(lambda: list(islice(self.samples, workload.BATCH)))
        return [(one["input_ids"], one["old_log_probs"], one["completion_mask"]) for one in taken]
