"""Agent Lightning: its server. A rollout is one call of the model, in the shape in which the gateway records a chat completion of vLLM."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httpx
import workload
from agentlightning.client import AgentLightningAsyncClient

#: Groups that are put at once.
AT_ONCE = 8


def server(settings: dict[str, Any]) -> list[str]:
    """The command of the process that holds what is put."""
    where = ["host=127.0.0.1", f"port={settings['port']}", f"hydra.run.dir={settings['dir']}", "hydra.job.chdir=false"]
    return [sys.executable, "-m", "agentlightning.server", *where]


async def connect(settings: dict[str, Any]) -> AgentLightningAsyncClient:
    client = AgentLightningAsyncClient(base_url=f"http://127.0.0.1:{settings['port']}", timeout=600)
    while True:
        try:
            await client.get("/healthz")
            return client
        except httpx.TransportError:
            await asyncio.sleep(0.05)


class Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    async def open(self) -> None:
        self.client = await connect(self.settings)

    async def put(self, number: int, group: list[workload.Trajectory]) -> None:
        told = [{"input": {"data_id": f"g{number}"}, "rollout_id": f"r{t.number}"} for t in group]
        (await self.client.post("/api/rollouts", json=told)).raise_for_status()
        await asyncio.gather(*map(self.finish, group))

    async def finish(self, t: workload.Trajectory) -> None:
        sampled = {"token_ids": t.ids[t.prompt :], "logprobs": {"content": [{"logprob": p} for p in t.logprobs[t.prompt :]]}}
        request = {"request": {}, "response": {"prompt_token_ids": t.ids[: t.prompt], "choices": [sampled]}}
        place = f"/api/rollouts/r{t.number}"
        (await self.client.patch(place, json={"status": {"state": "running"}})).raise_for_status()
        for kind, data in (("model_request", request), ("reward", {"value": t.reward})):
            (await self.client.post(f"{place}/attempt/0/events", json={"event_type": kind, "data": data})).raise_for_status()
        (await self.client.patch(place, json={"status": {"state": "succeeded"}})).raise_for_status()


class Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.after = settings, 0
        self.waiting: list[str] = []

    async def open(self) -> None:
        self.client = await connect(self.settings)

    async def batch(self) -> list[tuple[Any, Any, Any]]:
        while len(self.waiting) < workload.BATCH:
            page = (await self.client.get("/api/rollouts/terminal", params={"after": self.after, "limit": 64})).json()
            self.after, self.waiting = page["next_after"], self.waiting + [item["rollout_id"] for item in page["items"]]
            if not page["items"]:
                await asyncio.sleep(0.01)
        names, self.waiting = self.waiting[: workload.BATCH], self.waiting[workload.BATCH :]
        return list(await asyncio.gather(*map(self.one, names)))

    async def one(self, name: str) -> tuple[Any, Any, Any]:
        events = (await self.client.get(f"/api/rollouts/{name}/events", params={"format": "triplet"})).json()
        data = next(e["data"] for e in events if e["event_type"] == "model_request")
        prompt, sampled = data["prompt_token_ids"], data["response_token_ids"]
        return prompt + sampled, [0.0] * len(prompt) + data["response_log_probs"], [False] * len(prompt) + [True] * len(sampled)
