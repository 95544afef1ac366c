"""Tasksets of verifiers: their tasks as those of a run, their rewards as its reward function."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .rating import Rollout

__all__ = ["STOPS", "Tasks", "parts"]


class Tasks:
    """A taskset of verifiers for a run of Rondo's: `write` makes the file of its tasks, `reward` rates their rollouts.

        tasks = Tasks(load_taskset(config))
        tasks.write("tasks.jsonl")             # rondo run open … --tasks tasks.jsonl
        env.serve("my-run", reward=tasks.reward)

    The plane holds the conversation, so a task may not need what only verifiers' own harness gives: a container, tool servers, a user who
    opens. Its rewards, metrics and judges see a trace of the rollout, and may not ask for a runtime.
    """

    def __init__(self, taskset: Any) -> None:
        self._taskset = taskset
        self._type = type(taskset).task_type()
        self._config = taskset.config.task

    def rows(self) -> Iterator[dict[str, Any]]:
        """The tasks as a run reads them. ValueError for one that Rondo cannot hold a conversation about."""
        if not self._taskset.bounded:
            raise ValueError("the taskset has no end: bound it, for example by take(1000)")
        if type(self._taskset).toolsets(self._taskset.config):
            raise ValueError("the taskset brings tool servers, which only verifiers' own harness starts")
        seen: set[str] = set()
        for task in self._taskset:
            _check(task)
            if task.key in seen:
                raise ValueError(f"two tasks have the key {task.key}")
            seen.add(task.key)
            # Rondo's system prompt is the run's, so that of a task stands before its prompt.
            text = "\n\n".join(part for part in (task.data.system_prompt, task.data.prompt_text) if part)
            data = task.data.model_dump(mode="json", exclude_none=True)
            yield {"name": task.key[:32], "instruction": text, "task": data}

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the file of the tasks; how many there are."""
        lines = [json.dumps(row) + "\n" for row in self.rows()]
        Path(path).write_text("".join(lines))
        return len(lines)

    def reward(self, rollout: Rollout) -> Mapping[str, float]:
        """The reward of a finished rollout and its parts: each reward's score and each metric, by their names."""
        data = self._type.data_type().model_validate(rollout.data["task"])
        task = self._type(data, self._config)
        trace = _trace(task, rollout)
        asyncio.run(task.score(trace))
        return parts(trace)


def parts(trace: Any) -> dict[str, float]:
    """The reward of a trace that was scored, and its parts. ValueError for one without a score: their sum would count it as 0."""
    if not trace.rewards:
        raise ValueError("the task has no rewards")
    if unscored := [name for name, reward in trace.rewards.items() if reward is None or reward.score is None]:
        raise ValueError(f"rewards without a score: {', '.join(unscored)}")
    known = {name: reward.score for name, reward in trace.rewards.items()}
    known |= {name: value for name, value in trace.metrics.items() if value is not None}
    if "reward" in known:
        raise ValueError('a reward or metric of the task has the name "reward", which is that of their sum')
    return {"reward": trace.reward, **known}


def _check(task: Any) -> None:
    of = f"task {task.data.name or task.data.idx}"
    if type(task).NEEDS_CONTAINER or task.data.image is not None:
        raise ValueError(f"{of} needs a container")
    if type(task).toolsets(task.config):
        raise ValueError(f"{of} brings tool servers, which only verifiers' own harness starts")
    prompt = task.data.prompt
    one = isinstance(prompt, str) or (prompt and [m.role for m in prompt] == ["user"] and isinstance(prompt[0].content, str))
    if not one or not task.data.prompt_text:
        raise ValueError(f"{of} does not begin with one text of a user")
    signals = [*task.hooks("reward"), *task.hooks("metric"), *(judge.score for judge in task.plugged_judges())]
    for signal in signals:
        asked = inspect.signature(signal).parameters.get("runtime")
        if asked is not None and asked.default is inspect.Parameter.empty:  # verifiers would leave it out, and the reward would be another
            raise ValueError(f"{of}: {signal.__name__} asks for a runtime")


#: The limits that end a rollout by what Rondo calls them, and what verifiers does.
STOPS = {"max_turns": "max_turns", "max_tokens": "max_total_tokens", "context": "max_input_tokens", "length": "max_output_tokens"}


def _trace(task: Any, rollout: Rollout) -> Any:
    """The rollout as verifiers would have recorded it, without its tokens."""
    from verifiers import v1 as vf

    nodes = []
    for i, message in enumerate(rollout.messages):
        nodes.append(vf.MessageNode(parent=i - 1 if i else None, message=_message(vf, message), sampled=message["role"] == "assistant"))
    return vf.Trace(
        id=f"{rollout.run}-{rollout.id}",
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig())),
        nodes=nodes,
        is_completed=True,
        ok=True,
        stop_condition=STOPS.get(rollout.stop_reason),
        is_timeout=rollout.stop_reason == "timeout",
    )


def _message(vf: Any, message: Mapping[str, Any]) -> Any:
    role, text = message["role"], message.get("content") or ""
    if role == "assistant":
        calls = [vf.ToolCall(id=c["id"], name=c["name"], arguments=c["arguments"]) for c in message.get("tool_calls") or []]
        return vf.AssistantMessage(content=text, reasoning_content=message.get("reasoning") or None, tool_calls=calls or None)
    if role == "tool":
        return vf.ToolMessage(tool_call_id=message.get("tool_call_id") or "", content=text, name=message.get("name") or None)
    return (vf.SystemMessage if role == "system" else vf.UserMessage)(content=text)
