"""One process of a rival: drive.py produce|consume SETTINGS, where PYTHONPATH has the rival's driver.py.

SETTINGS is JSON: what `run` tells all processes of a row. Each waits for a line on its input before it begins, and prints lines of JSON.
Times are those of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import driver
import numpy as np
import workload

#: Lines go here, and nothing that a package prints.
OUT = os.fdopen(os.dup(1), "w")


def say(**told: Any) -> None:
    print(json.dumps(told), file=OUT, flush=True)


async def go() -> None:
    say(ready=True)
    if not await asyncio.to_thread(sys.stdin.readline):
        sys.exit("nobody is there any more")


async def produce(settings: dict[str, Any]) -> None:
    """Put all groups, `driver.AT_ONCE` of them at once."""
    groups = workload.groups(settings["trajectories"], settings["tokens"])
    producer = driver.Producer(settings)
    await producer.open()
    await go()
    slots = asyncio.Semaphore(driver.AT_ONCE)

    async def put(number: int, group: list[workload.Trajectory]) -> None:
        async with slots:
            await producer.put(number, group)

    began = time.monotonic()
    await asyncio.gather(*(put(i, group) for i, group in enumerate(groups)))
    say(began=began, ended=time.monotonic())
    await asyncio.to_thread(sys.stdin.readline)  # it lives as long as the row does


async def consume(settings: dict[str, Any]) -> None:
    """Take batches until `take` trajectories are here, each as numpy arrays."""
    consumer = driver.Consumer(settings)
    await consumer.open()
    await go()
    producing = asyncio.create_task(produced(consumer)) if hasattr(consumer, "produce") else None
    taken = 0
    while taken < settings["take"]:
        samples = [
            (np.asarray(ids, np.int32), np.asarray(logprobs, np.float32), np.asarray(mask, np.bool_))
            for ids, logprobs, mask in await consumer.batch()
        ]
        at, taken = time.monotonic(), taken + len(samples)
        say(batch=[figures(*sample) for sample in samples], at=at)
    if hasattr(consumer, "checkpointed"):
        await consumer.checkpointed()
    if producing:
        await producing
    say(done=True)
    await asyncio.to_thread(sys.stdin.readline)


def figures(ids: Any, logprobs: Any, mask: Any) -> list[float]:
    """workload.figures, by numpy: the clock runs meanwhile, and a loop over elements would be the limit of fast rows."""
    return [int(ids[0]), int(ids.sum(dtype=np.int64)), round(float(logprobs.sum(dtype=np.float64)), 1), int(mask.sum())]


async def produced(consumer: Any) -> None:
    """Let the producer begin that is a child of the trainer, and tell of it."""
    began, ended = await consumer.produce()
    say(began=began, ended=ended)


if __name__ == "__main__":
    os.dup2(2, 1)
    asyncio.run({"produce": produce, "consume": consume}[sys.argv[1]](json.loads(sys.argv[2])))
    os._exit(0)  # threads of packages are of no interest
