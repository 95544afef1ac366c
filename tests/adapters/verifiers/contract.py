"""rondo.env.verifiers against verifiers itself: a taskset's tasks become a run's, and its own code rates what Rondo recorded."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import served
from mended import binary
from verifiers import v1 as vf

from rondo.env.rating import Rollout
from rondo.env.verifiers import Tasks
from tests.model import serving
from tests.pages import TRAINER, followed

GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/environment-libraries.md"


class SumData(vf.TaskData):
    answer: str = ""


class Sum(vf.Task[SumData]):
    @vf.reward(weight=0.75)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def tidy(self, trace: vf.Trace) -> dict[str, float]:
        return {"short": float(len(trace.last_reply) < 4), "calm": float("!" not in trace.last_reply)}

    @vf.metric
    async def seen(self, trace: vf.Trace) -> dict[str, float]:
        tools = [m.content for m in trace.tool_messages]
        calls = [c.name for m in trace.assistant_messages for c in m.tool_calls or []]
        return {"turns": float(trace.num_turns), "tools": float(tools == ["4"] and calls == ["add"]), "cut": float(trace.is_truncated)}


class Sums(vf.Taskset[Sum]):
    def load(self) -> Any:
        for i in range(3):
            yield Sum(
                SumData(prompt=f"What is {i} + 2?", answer=str(i + 2), system_prompt="Answer with the number alone."), self.config.task
            )


def taskset(cls: Any = Sums) -> Any:
    return cls(vf.TasksetConfig(id="sums"))


def rollout(row: dict[str, Any], answer: str, stop: str = "finished") -> Rollout:
    said = [
        {"role": "system", "content": "You are a calculator."},
        {"role": "user", "content": row["instruction"]},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c0", "name": "add", "arguments": '{"a": 2, "b": 2}'}]},
        {"role": "tool", "content": "4", "name": "add", "tool_call_id": "c0"},
        {"role": "assistant", "content": answer, "reasoning": "Two and two."},
    ]
    data = {key: value for key, value in row.items() if key not in ("name", "instruction")}
    return Rollout("sums", "g000001-0", row["name"], row["instruction"], data, said, stop, None, ())  # type: ignore[arg-type]


def the_tasks_become_rows() -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert Tasks(taskset()).write(Path(folder, "sums.jsonl")) == 3
        rows = [json.loads(line) for line in Path(folder, "sums.jsonl").read_text().splitlines()]
    assert [r["instruction"] for r in rows] == [f"Answer with the number alone.\n\nWhat is {i} + 2?" for i in range(3)]
    assert [r["name"] for r in rows] == [t.key[:32] for t in taskset()] and rows[2]["task"]["answer"] == "4"
    assert [r["name"] for r in Tasks(taskset().shuffle(1).take(2)).rows()] != [r["name"] for r in rows[:2]]


def their_rewards_rate_rollouts() -> None:
    tasks = Tasks(taskset())
    row = json.loads(json.dumps(list(tasks.rows())[2]))
    right = {"reward": 0.75 + 0.25 + 0.25, "exact": 1.0, "short": 1.0, "calm": 1.0, "turns": 2.0, "tools": 1.0, "cut": 0.0}
    assert tasks.reward(rollout(row, " 4\n")) == right, tasks.reward(rollout(row, " 4\n"))
    wrong = tasks.reward(rollout(row, "Five, I think!", "max_turns"))
    assert wrong == {**right, "reward": 0.0, "exact": 0.0, "short": 0.0, "calm": 0.0, "cut": 1.0}, wrong
    assert [tasks.reward(rollout(row, "4", stop))["cut"] for stop in ("length", "max_tokens", "context", "timeout")] == [1, 1, 1, 0]


def what_fails_is_no_reward() -> None:
    class Broken(Sum):
        @vf.reward
        async def breaks(self, trace: vf.Trace) -> float:
            raise RuntimeError("no judge answers")

    class Brokens(vf.Taskset[Broken]):
        def load(self) -> Any:
            yield Broken(SumData(prompt="Fail."), self.config.task)

    tasks = Tasks(taskset(Brokens))
    refused(lambda: tasks.reward(rollout(next(tasks.rows()), "4")), "no judge answers")


def what_rondo_cannot_hold_is_refused() -> None:
    class Boxed(Sum):
        NEEDS_CONTAINER = True

    class Looking(Sum):
        @vf.reward
        async def clean(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
            return 1.0

    class Summed(Sum):
        @vf.metric
        async def reward(self, trace: vf.Trace) -> float:
            return 1.0

    assistant = [vf.UserMessage(content="Hello."), vf.AssistantMessage(content="Hello!")]
    for task, data, reason in [
        (Boxed, SumData(prompt="a"), "needs a container"),
        (Sum, SumData(prompt="a", image="debian"), "needs a container"),
        (Looking, SumData(prompt="a"), "clean asks for a runtime"),
        (Sum, SumData(), "does not begin with one text"),
        (Sum, SumData(prompt=assistant), "does not begin with one text"),
    ]:
        refused(lambda task=task, data=data: list(Tasks(taskset(made(task, data))).rows()), reason)
    refused(lambda: list(Tasks(taskset(made(Sum, SumData(prompt="a"), 2))).rows()), "two tasks have the key")
    summed = Tasks(taskset(made(Summed, SumData(prompt="a"))))
    refused(lambda: summed.reward(rollout(next(summed.rows()), "4")), "has the name")

    class Endless(Sums):
        INFINITE = True

    refused(lambda: list(Tasks(taskset(Endless)).rows()), "has no end")
    assert len(list(Tasks(taskset(Endless).take(2)).rows())) == 2


def made(task: Any, data: Any, times: int = 1) -> Any:
    class Made(vf.Taskset[task]):  # type: ignore[valid-type]
        def load(self) -> Any:
            for _ in range(times):
                yield task(data, self.config.task)

        def __iter__(self) -> Any:
            return iter(self.load())  # without the index, by which two tasks differ

    return Made


def refused(call: Any, reason: str) -> None:
    try:
        call()
    except Exception as error:
        if reason not in str(error):
            raise
    else:
        raise AssertionError(f"not refused: {reason}")


def the_guide_s_lines_run() -> None:
    [code] = [block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "rondo.env.verifiers" in block]
    given: dict[str, Any] = {}
    from rondo import env

    serve, env.serve = env.serve, lambda run, **options: given.update(options, run=run)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        try:
            exec(
                code.replace('"sums.jsonl"', repr(str(Path(folder, "sums.jsonl")))).replace("from my_tasks import Sums\n", ""),
                {"Sums": Sums},
            )
        finally:
            env.serve = serve
        row = json.loads(Path(folder, "sums.jsonl").read_text().splitlines()[0])
    assert given["run"] == "sums" and given["reward"](rollout(row, "2"))["exact"] == 1


def the_page_is_followed() -> None:
    """docs/guide/from-prime-rl.md: the tasks and rewards of its taskset are verifiers' own. prime-rl is not here."""
    with tempfile.TemporaryDirectory() as name, serving(lambda messages: str(messages[-1]["content"]).split()[2]) as url:
        folder = Path(name, "reader")
        folder.mkdir()
        with followed("from-prime-rl", folder, binary(Path(name)), url, {"batches.py": TRAINER.format(run="sums")}) as told:
            assert told["rewards"][0] == 0, told  # the model repeats the first number
            row = json.loads((folder / "tasks.jsonl").read_text().splitlines()[0])
    assert row["task"]["answer"] == "2", row


if __name__ == "__main__":
    checks = (
        the_tasks_become_rows,
        their_rewards_rate_rollouts,
        what_fails_is_no_reward,
        what_rondo_cannot_hold_is_refused,
        the_guide_s_lines_run,
        the_page_is_followed,
    )
    for check in checks:
        check()
        print(f"{check.__name__} ok", flush=True)
    served.checks()
