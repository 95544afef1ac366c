"""Atropos: its API server. Requests are JSON in gzip, as its environments send them."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from typing import Any

import aiohttp
import workload

#: Groups that are put at once.
AT_ONCE = 8


def server(settings: dict[str, Any]) -> list[str]:
    """The command of the process that holds what is put."""
    return [
        sys.executable,
        "-m",
        "uvicorn",
        "atroposlib.api.server:app",
        "--host",
        "127.0.0.1",
        "--port",
        str(settings["port"]),
        "--log-level",
        "warning",
    ]


class _Client:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.url, self.tokens = f"http://127.0.0.1:{settings['port']}", settings["tokens"]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else gzip.compress(json.dumps(body).encode())
        headers = {} if body is None else {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        # A session for each request, as in the package. The trainer asks for no compression: the server is slower with it.
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600), headers={"Accept-Encoding": "identity"}) as session,
            session.request(method, self.url + path, data=data, headers=headers) as answer,
        ):
            answer.raise_for_status()
            return await answer.json()

    async def connect(self) -> None:
        while True:
            try:
                await self.ask("GET", "/")
                return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


class Producer(_Client):
    async def open(self) -> None:
        await self.connect()
        environment = {"max_token_length": self.tokens, "desired_name": "bench", "weight": 1.0, "group_size": workload.GROUP}
        while (told := await self.ask("POST", "/register-env", environment))["status"] != "success":
            await asyncio.sleep(0.05)
        self.id = told["env_id"]

    async def put(self, number: int, group: list[workload.Trajectory]) -> None:
        masks = [[token if sampled else -100 for token, sampled in zip(t.ids, t.mask, strict=True)] for t in group]
        told = {
            "tokens": [t.ids for t in group],
            "masks": masks,
            "scores": [t.reward for t in group],
            "inference_logprobs": [t.logprobs for t in group],
        }
        await self.ask("POST", "/scored_data", {**told, "env_id": self.id})


class Consumer(_Client):
    async def open(self) -> None:
        await self.connect()
        trainer = {
            "wandb_group": "bench",
            "wandb_project": "bench",
            "batch_size": workload.BATCH,
            "max_token_len": self.tokens,
            "checkpoint_dir": "",
            "save_checkpoint_interval": 0,
        }
        await self.ask("POST", "/register", {**trainer, "starting_step": 0, "num_steps": 1000})
        await self.ask("GET", "/batch")  # environments wait for it

    async def batch(self) -> list[tuple[Any, Any, Any]]:
        while (groups := (await self.ask("GET", "/batch"))["batch"]) is None:
            await asyncio.sleep(0.01)
        return [
            (ids, logprobs, [label != -100 for label in mask])
            for group in groups
            for ids, logprobs, mask in zip(group["tokens"], group["inference_logprobs"], group["masks"], strict=True)
        ]
