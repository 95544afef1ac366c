"""Environments of OpenEnv's servers, played by a model that reads and writes text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .environment import Action, Answer, Step, Task

if TYPE_CHECKING:
    from openenv.core.harness.training import TrainingTrace

__all__ = ["OpenEnv", "training_trace"]


def _text(seen: Any) -> str:
    """An observation as JSON, without what the server says of itself."""
    if isinstance(seen, Mapping):
        seen = {name: value for name, value in seen.items() if name != "metadata" or value}
    return json.dumps(seen, ensure_ascii=False, default=str)


class OpenEnv:
    """A maker of episodes for `rondo.env.serve`.

    connect: makes a client of OpenEnv for a task, such as `GenericEnvClient(base_url=…)`. Each episode has its own client and session.
    say: what the model reads of an observation. Default: its JSON.
    act: the action that a text of the model's means; ValueError for none, which is told to the model. Default: the text as JSON.
    restart: what becomes of an episode whose worker is lost. "replay" plays its recorded turns again in a new session and compares;
    "fail" fails it.

    An episode begins with the rollout's seed, and with "reset" of the task's data. A server that is away or refuses fails the rollout
    as a machine that failed, and so does one whose episode ends without a reward. A reward that is None before adds nothing.
    """

    def __init__(
        self,
        connect: Callable[[Task], Any],
        *,
        say: Callable[[Any], str] = _text,
        act: Callable[[str], Any] = json.loads,
        restart: str = "replay",
    ) -> None:
        if restart not in ("replay", "fail"):
            raise ValueError(f'restart {restart!r}: must be "replay" or "fail"')
        self._connect, self._say, self._act, self._restart = connect, say, act, restart

    def __call__(self) -> _Episode:
        """Make an episode."""
        return _Episode(self._connect, self._say, self._act, self._restart)


class _Episode:
    def __init__(self, connect: Callable[[Task], Any], say: Callable[[Any], str], act: Callable[[str], Any], restart: str) -> None:
        self._connect, self._say, self._act, self.restart = connect, say, act, restart
        self._session: Any = None
        self._socket: Any = None
        self._paid = False

    def reset(self, task: Task) -> Answer:
        self._session = self._connect(task).sync()
        self._session.connect()
        result = self._session.reset(**{"seed": task.seed % (1 << 31), **task.data.get("reset", {})})
        self._socket = self._connected()
        return self._stepped(result, last=False)

    def _stepped(self, result: Any, *, last: bool) -> Step:
        """The step of an answer. ValueError where the episode ends without a reward."""
        self._paid = self._paid or result.reward is not None
        if (result.done and result.reward is None) or (last and not self._paid):
            raise ValueError("the server has no reward for the episode, which ends: its reward is None")
        return Step(self._say(result.observation), 0.0 if result.reward is None else result.reward, bool(result.done))

    def step(self, action: Action) -> Answer:
        try:
            meant = self._act(action.content)
        except ValueError as error:
            return f"That is no action: {error}"[:500]
        result = self._session.step(meant)
        if self._connected() is not self._socket:  # a new session, in which this episode never began, has answered
            raise ConnectionError("the server was lost in the middle of the episode")
        return self._stepped(result, last=action.last)

    def _connected(self) -> Any:
        """The socket of the session: OpenEnv's client makes another one, without a word, where it was lost."""
        return self._session.async_client._ws

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


#: What of a trajectory a training trace says. Python has no type for its times.
_COLUMNS = [
    *("rollout_id", "index", "turn", "segment", "role", "content", "tool_call_id", "tool_calls"),
    *("token_ids", "logprobs", "loss_mask", "policy_version", "finish_reason"),
]


def training_trace(trajectory: pa.Table) -> TrainingTrace:
    """OpenEnv's record of a rollout for trainers, of what `client.trajectory(run, rollout)` gives: a turn for each call of the model.

    A turn's id is its rollout and the place of its message, and its request has the messages of its segment before it. ValueError for a
    rollout whose tokens nobody knows.
    """
    from openenv.core.harness.training import TrainingTrace, TrainingTurn

    turns: list[Any] = []
    known: list[int] = []
    heard: list[dict[str, Any]] = []
    segment = 0
    for row in trajectory.select(_COLUMNS).to_pylist():
        if row["segment"] != segment:
            known, heard, segment = [], [], row["segment"]
        mask, said = row["loss_mask"], _message(row)
        if row["role"] == "assistant" and True in mask:
            first, end = mask.index(True), len(mask) - mask[::-1].index(True)
            prompt = known + row["token_ids"][:first]
            turn = TrainingTurn(
                node_id=f"{row['rollout_id']}/{row['index']}",
                prompt_token_ids=prompt,
                completion_token_ids=row["token_ids"][first:end],
                per_token_logps=row["logprobs"][first:end],
                loss_mask=[0] * len(prompt) + [int(sampled) for sampled in mask[first:end]],
                request={"messages": list(heard)},
                response={"choices": [{"message": said, "finish_reason": row["finish_reason"]}]},
                metadata={name: row[name] for name in ("turn", "segment", "policy_version")},
            )
            turns.append(turn)
        known = known + row["token_ids"]
        if row["role"] != "prompt":
            heard.append(said)
    if not turns:
        raise ValueError("the trajectory has no sampled tokens: its model gave none")
    return TrainingTrace(turns=turns)


def _message(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as a message of OpenAI's interface."""
    said: dict[str, Any] = {"role": row["role"], "content": row["content"]}
    if row["tool_calls"]:
        calls = json.loads(row["tool_calls"])
        said["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls
        ]
    if row["tool_call_id"]:
        said["tool_call_id"] = row["tool_call_id"]
    return said
