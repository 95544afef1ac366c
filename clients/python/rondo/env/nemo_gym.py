"""Environments of NeMo Gym: its tasks as those of a run, and its resources servers, which have tools and verify what came of a task."""

from __future__ import annotations

import http.client
import json
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from .environment import MAX_OBSERVED, MAX_REWARD, Action, Answer, Call, Step, Task

__all__ = ["NemoGym", "Tasks"]

#: Bytes that an answer of a server may have: what it verifies comes back with the reward.
MAX_BODY = 32 << 20

#: Seconds between two signs of life of a session. Servers end an idle connection: uvicorn after 5 s, NeMo Gym's own after 30 s.
BEAT = 4.0


class Tasks:
    """The tasks of a file of NeMo Gym's (JSONL, with `responses_create_params`) for a run of Rondo's.

    tools, system_prompt: those of all tasks, which the run file has to say (`run_file`). Where tasks have several system prompts, each
    stands before its instruction.

    ValueError for tasks that Rondo cannot hold a conversation about: with images, with turns of an assistant, or with different tools.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        self._read = [_task(n, json.loads(line)) for n, line in enumerate(lines, 1) if line.strip()]
        if not self._read:
            raise ValueError(f"{path} has no tasks")
        tools = [_tools(row) for row, _, _ in self._read]
        if any(of != tools[0] for of in tools):
            raise ValueError("tasks have different tools, and a run has one prompt for them: make a file of the tasks with the same ones")
        prompts = {system for _, system, _ in self._read}
        self.tools, self.system_prompt = tools[0], prompts.pop() if len(prompts) == 1 else ""

    def rows(self) -> Iterator[dict[str, Any]]:
        """The tasks as a run reads them."""
        for row, system, said in self._read:
            yield {"instruction": said if self.system_prompt or not system else f"{system}\n\n{said}", "row": row}

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the file of the tasks; how many there are."""
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in self.rows()))
        return len(self._read)

    def run_file(self, environment: str) -> str:
        """The lines of the run file that say the environment's name, its tools and the system prompt."""
        said: dict[str, Any] = {"environment": {"name": environment, "tools": self.tools}, "system_prompt": self.system_prompt}
        return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in said.items())


def _task(number: int, row: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
    """A task, its system prompt and what its user says."""
    asked = row.get("responses_create_params") or {}
    given = asked.get("input")
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else list(given or [])
    system = [str(asked["instructions"])] if asked.get("instructions") else []
    while messages and messages[0].get("role") in ("system", "developer"):
        system.append(_text(number, messages.pop(0)))
    if [m.get("role") for m in messages] != ["user"] or not (said := _text(number, messages[0])):
        raise ValueError(f"line {number}: the task does not begin with one text of a user")
    return row, "\n\n".join(system), said


def _text(number: int, message: Mapping[str, Any]) -> str:
    parts = message.get("content") or ""
    if isinstance(parts, str):
        return parts
    if any(part.get("type") != "input_text" for part in parts):
        raise ValueError(f"line {number}: the {message['role']}'s message has more than text")
    return "\n\n".join(part["text"] for part in parts)


def _tools(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools = row["responses_create_params"].get("tools") or []
    if other := [tool.get("type") for tool in tools if tool.get("type") != "function"]:
        raise ValueError(f"the tools must be functions, not {other}")
    return [{name: tool[name] for name in ("name", "description", "parameters") if tool.get(name)} for tool in tools]


class NemoGym:
    """A maker of episodes for `rondo.env.serve`, on a resources server of NeMo Gym's. The run's tasks are those of `Tasks`.

    url: of the server, and not of a proxy that keeps connections of its own: a connection that ends is a session that is lost.
    timeout: seconds that the server may take for an answer.
    patience: seconds in which a server that is away may come back before an episode begins.
    headers: of each request, such as Authorization.
    restart: what becomes of an episode whose worker is lost. "replay" calls the tools again in a new session and compares; "fail" fails it.

    The model's calls go to the server's tools, and the model reads their answers, errors included. When the model calls nothing, or a
    limit is reached, the server verifies the conversation. Its reward is the rollout's, and its other numbers are components. A server
    for Gym's gymnasium_agent answers each turn instead, and its rewards are added up. A server that dies, that cannot verify, or whose
    reward is no measurement (`mask_sample`) fails the rollout as a machine that failed.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 300.0,
        patience: float = 60.0,
        headers: Mapping[str, str] | None = None,
        restart: str = "replay",
    ) -> None:
        if restart not in ("replay", "fail"):
            raise ValueError(f'restart {restart!r}: must be "replay" or "fail"')
        self._url, self._timeout, self._patience, self._headers, self._restart = url, timeout, patience, dict(headers or {}), restart

    def __call__(self) -> _Episode:
        """Make an episode."""
        return _Episode(lambda: _Session(self._url, self._timeout, self._patience, self._headers), self._restart)


class _Episode:
    def __init__(self, connect: Callable[[], _Session], restart: str) -> None:
        self._connect, self.restart = connect, restart
        self._session: _Session | None = None
        self._output: list[dict[str, Any]] = []

    def reset(self, task: Task) -> Answer:
        self._task, self._row = task, task.data["row"]
        self._tools = {tool["name"] for tool in _tools(self._row)}
        self._session = session = self._connect()
        status, text = session.post("seed_session", self._row)
        self._steps = status == 404  # one for Gym's gymnasium_agent: it answers each turn, and has nothing to verify
        if not self._steps:
            _accepted("seed_session", status, text)
            return ""
        seen = session.asked("reset", self._row).get("observation")
        return f"{task.instruction}\n\n{seen}" if seen else ""

    def step(self, action: Action) -> Answer:
        assert self._session is not None
        if self._steps:
            return self._stepped(action)
        self._output += _said(action)
        answers: dict[str, str] = {}
        if action.finish_reason != "length":
            for call in action.calls:
                answers[call.id] = _cut(self._called(self._session, call), action)
                self._output.append({"type": "function_call_output", "call_id": call.id, "output": answers[call.id]})
        if answers and not action.last:
            return Step(answers=answers)
        said = self._judged("verify", action, self._output)
        numbers = {name: value for name, value in said.items() if name not in self._row} | (said.get("reward_components") or {})
        reward: Any = said.get("reward")  # none is refused where the step is recorded
        return Step(reward=reward, done=True, components=_measured(numbers), answers=answers)

    def _stepped(self, action: Action) -> Step:
        said = self._judged("step", action, list(_said(action)))
        given = {one["call_id"]: str(one["output"]) for one in (said.get("info") or {}).get("tool_outputs") or []}
        answers = {call.id: _cut(given.get(call.id, json.dumps({"error": "There is no answer"})), action) for call in action.calls}
        reward: Any = said.get("reward")
        return Step(said.get("observation") or "", reward, bool(said["terminated"] or said["truncated"]), answers=answers)

    def _called(self, session: _Session, call: Call) -> str:
        if call.name not in self._tools:  # verify and the like are the server's, too, and not for the model
            return json.dumps({"error": f"There is no tool {call.name}"})
        try:
            arguments = call.parsed()
        except ValueError as error:
            return json.dumps({"error": f"Invalid tool call arguments: {error}"})
        return session.post(call.name, arguments)[1].decode(errors="replace")

    def _judged(self, path: str, action: Action, output: list[dict[str, Any]]) -> dict[str, Any]:
        """What the server says of what the model said."""
        assert self._session is not None
        asked, cut = self._row["responses_create_params"], action.finish_reason == "length"
        response = {
            "id": f"resp_{self._task.rollout}",
            "object": "response",
            "created_at": int(time.time()),
            "model": asked.get("model") or "policy",
            "output": output,
            "tools": asked.get("tools") or [],
            "tool_choice": asked.get("tool_choice") or "auto",
            "parallel_tool_calls": asked.get("parallel_tool_calls") is not False,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        }
        said: dict[str, Any] = self._session.asked(path, {**self._row, "response": response})
        if said.get("mask_sample"):
            raise RuntimeError(f"the server has no reward for this: {said.get('failure_kind')}: {said.get('failure_reason')}")
        return said

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


def _cut(answer: str, action: Action) -> str:
    """As much of an answer as there is room for, where all calls of the turn are answered at once."""
    return answer.encode(errors="replace")[: MAX_OBSERVED // len(action.calls)].decode(errors="ignore")


def _said(action: Action) -> Iterator[dict[str, Any]]:
    """A turn as items of a response."""
    if action.reasoning:
        summary = [{"type": "summary_text", "text": action.reasoning}]
        yield {"type": "reasoning", "id": f"rs_{action.turn}", "summary": summary}
    if action.content or not (action.calls or action.reasoning):
        text = {"type": "output_text", "text": action.content, "annotations": []}
        yield {"type": "message", "id": f"msg_{action.turn}", "role": "assistant", "status": "completed", "content": [text]}
    for call in action.calls:
        yield {
            "type": "function_call",
            "id": call.id,
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }


def _measured(given: Mapping[str, Any]) -> dict[str, float]:
    """What of it is a number that a component of a reward may be."""
    numbers = {
        name: float(value)
        for name, value in given.items()
        if isinstance(value, (bool, int, float)) and name not in ("reward", "mask_sample")
    }
    return {name: value for name, value in numbers.items() if math.isfinite(value) and abs(value) <= MAX_REWARD}


class _Session:
    """A session of a resources server, over one connection.

    A server that was started again accepts the cookies of earlier sessions, and does not say that their state is lost. So a connection
    that ends is not made again. It is used every few seconds, as servers end an idle one.
    """

    def __init__(self, url: str, timeout: float, patience: float, headers: Mapping[str, str]) -> None:
        at = urlsplit(url)
        if at.scheme not in ("http", "https") or not at.netloc:
            raise ValueError(f"url {url!r}: must be as http://127.0.0.1:8000")
        self._base, self._headers = at.path.rstrip("/"), {"Content-Type": "application/json", **headers}
        self._cookies: dict[str, str] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(at.netloc, timeout=timeout)
        deadline = time.monotonic() + patience
        while True:
            try:
                self._connection.connect()
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise ConnectionError(f"the resources server is away: {error}") from error
                time.sleep(0.5)
        self._connection.auto_open = 0
        threading.Thread(target=_beat, args=(weakref.ref(self), self._over), daemon=True).start()

    def asked(self, path: str, body: Any) -> Any:
        """What the server answers to its protocol; RuntimeError where it refuses."""
        return json.loads(_accepted(path, *self.post(path, body)))

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        """The status and the text of an answer; ConnectionError where the server is lost."""
        return self._request("POST", path, json.dumps(body).encode())

    def beat(self) -> bool:
        """Use the connection; whether it is still there."""
        try:
            self._request("GET", "", None)
        except (ConnectionError, ValueError):
            return False
        return True

    def _request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        with self._lock:
            headers = {**self._headers, "Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}
            try:
                self._connection.request(method, f"{self._base}/{quote(path, safe='')}", body, headers)
                response = self._connection.getresponse()
                text = response.read(MAX_BODY + 1)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise ConnectionError(
                    f"the resources server was lost in the middle of the episode: {type(error).__name__}: {error}"
                ) from error
            if len(text) > MAX_BODY:
                self._connection.close()
                raise ValueError(f"the resources server answers with more than {MAX_BODY} bytes")
            if response.status in (502, 503, 504):  # said by something before a server that is away
                raise ConnectionError(f"the resources server is away: {response.status}")
            for header in response.headers.get_all("Set-Cookie", []) if method == "POST" else ():
                self._cookies |= {name: cookie.value for name, cookie in SimpleCookie(header).items()}
            return response.status, text

    def close(self) -> None:
        """End the connection; the server forgets sessions by itself."""
        self._over.set()
        with self._lock:
            self._connection.close()


def _accepted(path: str, status: int, text: bytes) -> bytes:
    if status != 200:
        raise RuntimeError(f"the server answers {path} with {status}: {text[:300].decode(errors='replace')}")
    return text


def _beat(of: weakref.ref[_Session], over: threading.Event) -> None:
    """Use a session's connection as long as somebody has the session."""
    while not over.wait(BEAT):
        session = of()
        if session is None or not session.beat():
            return
        del session
