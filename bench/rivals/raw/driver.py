"""The raw limit: the arrays of each batch in a file, written, synced, renamed, and read by a process that waits for it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import workload

#: Groups that are put at once.
AT_ONCE = 1


class Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.dir, self.synced = Path(settings["dir"]), settings["variant"] == "synced"
        self.waiting: list[workload.Trajectory] = []
        self.step = 0

    async def open(self) -> None:
        self.folder = os.open(self.dir, os.O_RDONLY)

    async def put(self, number: int, group: list[workload.Trajectory]) -> None:
        self.waiting += group
        if len(self.waiting) < workload.BATCH:
            return
        part, path = self.dir / "part", self.dir / f"{self.step}.bin"
        with part.open("wb") as file:
            for t in self.waiting:
                np.asarray(t.ids, np.int32).tofile(file)
                np.asarray(t.logprobs, np.float32).tofile(file)
                np.asarray(t.mask, np.bool_).tofile(file)
            file.flush()
            if self.synced:
                os.fsync(file.fileno())
        part.rename(path)
        if self.synced:
            os.fsync(self.folder)
        self.waiting, self.step = [], self.step + 1


class Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.dir, self.tokens = Path(settings["dir"]), settings["tokens"]
        self.step = settings["after"]

    async def open(self) -> None:
        pass

    async def batch(self) -> list[tuple[Any, Any, Any]]:
        path = self.dir / f"{self.step}.bin"
        while not path.exists():
            await asyncio.sleep(0.002)
        data, n, samples = path.read_bytes(), self.tokens, []
        for at in range(0, len(data), 9 * n):
            samples.append(
                (
                    np.frombuffer(data, np.int32, n, at),
                    np.frombuffer(data, np.float32, n, at + 4 * n),
                    np.frombuffer(data, np.bool_, n, at + 8 * n),
                )
            )
        self.step += 1
        return samples
