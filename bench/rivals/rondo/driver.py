"""Rondo: `rondo up`, its Python client on both sides. What is put is on the log, and its files in the store, when the call returns."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import workload

import rondo

#: Groups that are put at once.
AT_ONCE = 4
RUN, FEED = "bench", "trainer"
NOT_SENT = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
NEVER_PAUSED = ("agent_restarts", "hopeless_groups", "failure_window", "untrainable_groups", "no_signal_groups")
#: All but what it is about are the settings of a run to which only outsiders bring rollouts.
CONFIG = {
    "policy": "bench", "endpoint": "", "external": True, "group_size": workload.GROUP,
    "feeds": [{"name": FEED, "groups_per_batch": workload.BATCH // workload.GROUP}],
    "staleness": {"max": 1000}, "advantage": {"estimator": "mean_centred"}, "in_flight": "auto",
    "sampling": {"temperature": 1, "max_tokens": 1 << 16, **dict.fromkeys(NOT_SENT)},
    "limits": {"turns": 32, "tokens": 1 << 17, "timeout": "10m", "tries": 5, **dict.fromkeys(NEVER_PAUSED, 0)},
    "pool": "pool", "min_isolation": "", "system_prompt": "", "tasks": [],
}  # fmt: skip


def server(settings: dict[str, Any]) -> list[str]:
    """The command of the process that holds what is put."""
    (Path(settings["dir"]) / "endpoint.json").unlink(missing_ok=True)  # that of a process that was killed
    return [os.environ["RONDO_BINARY"], "up", "--dir", settings["dir"], "--durability", settings["variant"]]


class Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.client = rondo.AsyncClient(settings["dir"], wait=60)

    async def open(self) -> None:
        await self.client.open()
        await self.client.state(RUN, "run.opened", RUN, {"config": CONFIG}, id="opened")

    async def put(self, number: int, group: list[workload.Trajectory]) -> None:
        trajectories = []
        for t in group:
            question = rondo.Message("user", token_ids=t.ids[: t.prompt])
            answer = rondo.Message("assistant", token_ids=t.ids[t.prompt :], logprobs=t.logprobs[t.prompt :], finish_reason="stop")
            trajectories.append(rondo.Trajectory([question, answer], reward=t.reward))
        await self.client.publish_group(RUN, group=f"g{number}", task="synthetic", trajectories=trajectories)


class Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.client = rondo.AsyncClient(settings["dir"], wait=60)
        self.after = settings["after"]

    async def open(self) -> None:
        await self.client.open()
        while True:  # until the producer has opened the run
            try:
                await self.client.config(RUN)
                break
            except rondo.NotFound:
                await asyncio.sleep(0.05)
        self.feed = await rondo.AsyncFeed(RUN, FEED, client=self.client, after=self.after).open()

    async def batch(self) -> list[tuple[Any, Any, Any]]:
        self.last = await anext(self.feed)
        await self.feed.consumed(self.last)
        columns, at = (self.last.tokens, self.last.sampler_logprobs, self.last.loss_mask), self.last.offsets
        return [tuple(column.values[at[i] : at[i + 1]] for column in columns) for i in range(len(self.last))]

    async def checkpointed(self) -> None:
        """The trainer's state is saved: it goes on behind the last batch."""
        await self.feed.checkpointed(self.last)
