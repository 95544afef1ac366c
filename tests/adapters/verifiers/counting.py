"""A taskset of verifiers with its harness, as the EnvServer of the contract loads it: the model counts, a turn for each number."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from verifiers import v1 as vf
from verifiers.v1.runtimes import ProgramResult

__all__ = ["Counting", "Talk"]

#: How often the server has scored each task.
SCORED: dict[str, int] = {}


class CountData(vf.TaskData):
    turns: int = 3
    #: The task's first scorings that fail: the server discards these attempts, where it may retry.
    flaky: int = 0
    #: The harness asks once more, behind its first turn alone: the trace has two branches.
    forks: bool = False
    #: The harness never ends.
    hangs: bool = False


class Count(vf.Task[CountData]):
    @vf.reward(weight=0.5)
    async def counted(self, trace: vf.Trace) -> float:
        SCORED[self.data.name] = SCORED.get(self.data.name, 0) + 1
        if SCORED[self.data.name] <= self.data.flaky:
            raise RuntimeError("the grader is away")
        return float(trace.num_turns == self.data.turns + self.data.forks)

    @vf.metric
    async def calm(self, trace: vf.Trace) -> float:
        return float("!" not in trace.last_reply)


class Counting(vf.Taskset[Count]):
    def load(self) -> Any:
        return iter(())  # whoever plays the tasks has them


class Talk(vf.Harness[vf.HarnessConfig]):
    """Asks as often as the task says, in the server's process."""

    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any) -> ProgramResult:
        messages = [{"role": "user", "content": data.prompt}]
        async with httpx.AsyncClient(timeout=120, trust_env=False) as client:
            for turn in range(data.turns + data.forks):
                if turn == data.turns:
                    messages = [*messages[:2], {"role": "user", "content": "Begin again."}]
                asked = {"model": ctx.model, "messages": messages}
                answer = await client.post(f"{endpoint}/chat/completions", json=asked, headers={"Authorization": f"Bearer {secret}"})
                if answer.status_code != 200:
                    return ProgramResult(1, "", answer.text)
                messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": f"Go on. Ü {turn}"}]
                messages[-2] = {"role": "assistant", "content": messages[-2]["content"]}
        if data.hangs:
            await asyncio.sleep(3600)
        return ProgramResult(0, "", "")
