"""Rollouts of a harness of one's own, over the gateway's HTTP interface: a model, a workspace and a verdict."""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from . import variables
from .checkout import checkout
from .errors import Failed, GatewayError

__all__ = ["Executed", "Rollout", "Sandbox", "Turn", "Verdict", "rollout"]


@dataclass(frozen=True)
class Executed:
    """How a command ended. The middle of long output is dropped; what was dropped is counted."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    dropped_bytes: int
    duration_ms: float


@dataclass(frozen=True)
class Verdict:
    """What became of a rollout: the verifier's reward and what it is made of; forfeit says what the agent did that left no verdict."""

    reward: float
    components: Mapping[str, float]
    forfeit: str = ""


@dataclass(frozen=True)
class Turn:
    """The tokens of a turn as they are on the log; none of a turn that is text only.

    Turns of one segment are one training sample: the prompt of each begins with the prompt and the answer of the one before it.
    """

    segment: int
    #: The whole prompt's.
    prompt_token_ids: Sequence[int]
    #: The sampled ones, and their log-probabilities.
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    #: `length` where the server has cut the turn.
    finish_reason: str
    #: The weights that sampled it, the oldest where there are several; -1 for not known.
    policy_version: int
    #: Where there are several: `version`, `start` and `end` among the turn's tokens.
    version_spans: Sequence[Mapping[str, int]]
    text_only: bool
    #: What made the server sample from another distribution than the model's own, such as a grammar or a forced tool choice.
    #: A trainer masks such tokens.
    constrained: Sequence[str] = ()


#: Bytes of a file that one request reads.
_PAGE = 4 << 20

#: Seconds to wait for a gateway that this process has had no answer of yet: most often its address is wrong, or nothing was started.
PATIENCE = 2.0
_answered = set[str]()


class Gateway:
    """A gateway's HTTP interface. What may be repeated is repeated, for at most `timeout` seconds; keys stand in no error."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        self.url, self.key, self._timeout = url.rstrip("/"), key, timeout
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"gateway {url[:200]!r}: give a URL such as http://127.0.0.1:8790")

    def find(self) -> None:
        """Make sure that there is a gateway. One that has answered before may be restarting, and is waited for later."""
        until = time.monotonic() + min(PATIENCE, self._timeout)
        while self.url not in _answered:
            try:
                urllib.request.urlopen(self.url + "/healthz", timeout=max(0.1, until - time.monotonic())).close()
            except urllib.error.HTTPError as error:  # an answer, too
                error.close()
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() + 0.1 > until:
                    advice = "`rondo up` with `--gateway-listen` starts one, and gateway= or RONDO_GATEWAY names another"
                    raise GatewayError(f"the gateway at {self.url} gives no answer ({error}): {advice}", 0, "unreachable") from None
                time.sleep(0.1)
                continue
            _answered.add(self.url)

    def ask(self, path: str, body: Mapping[str, Any] | None = None, *, named: bool = False, patience: float = 0) -> dict[str, Any]:
        """Ask once, or until there is an answer where a second time does no harm. `named` calls carry a key of their own."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        if named:
            headers["Idempotency-Key"] = secrets.token_hex(16)
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + self._timeout + patience
        for attempt in range(1 << 30):
            request = urllib.request.Request(self.url + path, data, headers)
            wait = min(5.0, 0.1 * 2 ** min(attempt, 6))
            try:
                with urllib.request.urlopen(request, timeout=self._timeout + patience) as answer:
                    found = json.load(answer)
                    return dict(found)
            except urllib.error.HTTPError as error:
                problem = _refusal(error)
                if problem.status not in (429, 500, 502, 503, 504):
                    raise problem from None
                wait = max(wait, _seconds(error.headers.get("Retry-After")))
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem = GatewayError(f"the gateway at {self.url} gives no answer: {error}", 0, "unreachable")
            if time.monotonic() + wait > until:
                raise problem
            time.sleep(wait)
        raise AssertionError("unreachable")


def _refusal(error: urllib.error.HTTPError) -> GatewayError:
    try:
        told = json.loads(error.read(1 << 20))["error"]
        return GatewayError(str(told["message"]), error.code, str(told.get("code", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return GatewayError(f"the gateway answered {error.code}", error.code, "")


def _seconds(text: str | None) -> float:
    return min(60.0, float(text)) if text and text.isdigit() else 0.0


class Sandbox:
    """The workspace of a rollout's task. Each call is recorded and done once, also where its answer was lost on the way."""

    def __init__(self, gateway: Gateway, path: str) -> None:
        self._gateway, self._path = gateway, path

    def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = 60.0,
        dir: str = "",
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Executed:
        """Run a command for at most `timeout` seconds; a text is a line for sh. A command that fails is no error."""
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        more = {"dir": dir, "env": dict(env or {}), "stdin": stdin}
        body = {"command": words, "timeout_s": timeout, **{name: value for name, value in more.items() if value}}
        return Executed(**self._gateway.ask(f"{self._path}/exec", body, named=True, patience=timeout))

    def read_bytes(self, path: str) -> bytes:
        """The content of a file of at most 64 MiB."""
        content, offset, size = b"", 0, 1
        while offset < size:
            part = self._gateway.ask(f"{self._path}/read", {"path": path, "offset": offset, "limit": _PAGE}, named=True)
            content += base64.b64decode(part["base64"]) if "base64" in part else str(part.get("content", "")).encode()
            offset, size = offset + _PAGE, int(part["size"])
        return content

    def read(self, path: str) -> str:
        """The content of a text file."""
        return self.read_bytes(path).decode()

    def write(self, path: str, content: str | bytes, *, mode: int = 0) -> None:
        """Replace a file's content, at most 4 MiB, and make the folders above it."""
        data = content.encode() if isinstance(content, str) else content
        self._gateway.ask(f"{self._path}/write", {"path": path, "base64": base64.b64encode(data).decode(), "mode": mode}, named=True)

    def checkout(self, *, leave: Sequence[str] = ()) -> AbstractContextManager[Path]:
        """A copy of the workspace in a folder of this machine, for harnesses that edit files where they run.

        The folder is a Git repository of one commit. At the end of the block the files that it changed, made or removed are changed in
        the sandbox, too, and the folder is gone; a block that raises changes nothing. Not copied, in either direction: `.git` of the
        workspace, and what `leave` names: patterns for names at the top, such as settings that the harness would otherwise obey. Links
        that lead out are not fetched. Failed for a workspace that has over 64 MiB packed, or 1 GiB, or 100,000 entries.
        """
        return checkout(self, leave)


class Rollout:
    """A rollout that was started: `base_url` and `api_key` for a client of OpenAI's, `sandbox`, and the verdict.

    As a context it ends the rollout: the task's verifier decides the reward, or, where the block raised, a failure is stated. A harness
    that dies does neither; its rollout fails at its deadline.
    """

    def __init__(self, gateway: Gateway, told: Mapping[str, Any]) -> None:
        self._gateway, self._path = gateway, f"/rollouts/{told['id']}"
        self.id, self.base_url, self.api_key = str(told["id"]), str(told["base_url"]), gateway.key or "none"
        self.instruction, self.model, self.task = str(told.get("instruction", "")), str(told["model"]), str(told["task"])
        self.sandbox = Sandbox(gateway, self._path)
        self._over = False

    def finish(self, *, verify: bool = False, reward: float | None = None, failure: str = "") -> None:
        """End the rollout: by its verifier, with a reward of the harness's own, or with what went wrong. A second time does nothing."""
        if self._over:
            return
        body: dict[str, Any] = {"verify": True} if verify else {}
        if reward is not None:
            body["reward"] = reward
        if failure:
            body["failure"] = failure.encode()[:4000].decode(errors="ignore")
        self._gateway.ask(f"{self._path}/finish", body)
        self._over = True

    def turns(self) -> list[Turn]:
        """The tokens of the turns that are recorded up to now, in their order."""
        turns, known = [], dict[int, list[int]]()
        for t in self._gateway.ask(f"{self._path}/turns")["turns"]:
            prompt, ids = known.get(t["segment"], []) + t.get("prompt_delta", []), t.get("token_ids", [])
            known[t["segment"]] = prompt + ids
            spans, text_only = t.get("version_spans", []), t.get("text_only", False)
            held = tuple(t.get("constrained", []))
            turns.append(
                Turn(t["segment"], prompt, ids, t.get("logprobs", []), t["finish_reason"], t["policy_version"], spans, text_only, held)
            )
        return turns

    def verdict(self, timeout: float = 600.0) -> Verdict:
        """Wait for the verdict. Failed when the rollout ends without one, TimeoutError when there is none in time."""
        until, wait = time.monotonic() + timeout, 0.05
        while True:
            told = self._gateway.ask(self._path)
            if told["state"] == "scored":
                return Verdict(float(told["reward"]), dict(told.get("components") or {}), str(told.get("forfeit", "")))
            if told["state"] == "failed":
                raise Failed(f"rollout {self.id} has no verdict: {told.get('failure', '')}")
            if time.monotonic() + wait > until:
                raise TimeoutError(f"rollout {self.id} has no verdict within {timeout:g} s")
            time.sleep(wait)
            wait = min(2.0, 1.5 * wait)

    def __enter__(self) -> Rollout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.finish(verify=True)
        elif not self._over:
            self.finish(failure=f"the harness raised {kind.__name__}")


def rollout(
    run: str,
    task: str,
    *,
    gateway: str | None = None,
    key: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    group: str | None = None,
    member: int | None = None,
    size: int | None = None,
    timeout: float = 60.0,
) -> Rollout:
    """Start a rollout of a run's task.

    gateway: its URL. Default: RONDO_GATEWAY, or http://127.0.0.1:8790.
    key: one of the gateway's keys. Default: RONDO_GATEWAY_KEY, or what gateway.key holds in `dir` (default: RONDO_DIR, or .rondo).
    group, member, size: whom the rollout is compared with. Default: a new group of the run's size, and its first member.
    timeout: seconds to go on asking a gateway that gives no answer any more. One that never gave this process an answer is a GatewayError
    after 2 s.
    """
    variables.check()
    if key is None:
        key = os.environ.get("RONDO_GATEWAY_KEY") or _kept(Path(dir or os.environ.get("RONDO_DIR") or ".rondo") / "gateway.key")
    at = Gateway(gateway or os.environ.get("RONDO_GATEWAY") or "http://127.0.0.1:8790", key, timeout)
    at.find()
    if group is None:
        group, member = secrets.token_hex(8), member or 0  # a named member may be asked for again
    body = {"run": run, "task": task, "group": group, "member": member, "size": size}
    return Rollout(at, at.ask("/rollouts", {name: value for name, value in body.items() if value is not None}))


def _kept(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
