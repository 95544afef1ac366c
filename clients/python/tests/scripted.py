"""A model server that says what a script says, with token ids or without; and a plane whose gateway asks it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .conftest import ROOT, Plane


class Cut(str):
    """A text that the server cuts by length."""


#: What the model says to a conversation: a text, or a call's name and arguments.
Script = Callable[[list[dict[str, Any]]], "str | tuple[str, dict[str, Any]]"]

#: What mends the task shell-slugify.
MEND = 'sed -i \'s/-ge "$limit"/-gt "$limit"/\' lib/shorten.sh && sh test.sh'

RUN = """
policy: scripted
endpoint: {url}
external: true
group_size: 1
feeds: [{{name: trainer, groups_per_batch: 1}}]
"""


def tokens(messages: list[dict[str, Any]]) -> list[int]:
    """The token ids of a conversation: bytes of its messages, so that one that goes on begins like the one before."""
    spoken = [[m["role"], m.get("content") or "", [c["function"]["name"] for c in m.get("tool_calls") or []]] for m in messages]
    return list("".join(json.dumps(s) + "\n" for s in spoken).encode())


def logprobs(ids: list[int]) -> list[float]:
    """The log-probabilities of sampled tokens. They follow from token and place, so that a shift shows."""
    return [-((n + i) % 64 + 1) / 64 for n, i in enumerate(ids)]


def said(script: Script, messages: list[dict[str, Any]], exact: bool = False) -> dict[str, Any]:
    """A completion; an exact one has its token ids and log-probabilities, as vLLM gives them."""
    says = script(messages)
    message: dict[str, Any] = {"role": "assistant", "content": says if isinstance(says, str) else ""}
    if not isinstance(says, str):
        call = {"name": says[0], "arguments": json.dumps(says[1])}
        message["tool_calls"] = [{"id": f"call_{len(messages)}", "type": "function", "function": call}]
    reason = "length" if isinstance(says, Cut) else "stop" if isinstance(says, str) else "tool_calls"
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reason}
    answer: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice]}
    prompt, completion = 8, 4
    if exact:
        answer["prompt_token_ids"], choice["token_ids"] = tokens(messages), tokens([message])
        ids = choice["token_ids"]
        choice["logprobs"] = {
            "content": [{"token": f"token_id:{i}", "logprob": p, "top_logprobs": []} for i, p in zip(ids, logprobs(ids), strict=True)]
        }
        prompt, completion = len(tokens(messages)), len(tokens([message]))
    return {**answer, "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}


@contextmanager
def model(script: Script, exact: bool = False, answers: list[dict[str, Any]] | None = None) -> Iterator[str]:
    """The base URL of a server whose model follows a script, with token ids where it is exact; what it answers is appended to answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = said(script, asked["messages"], exact)
            if answers is not None:
                answers.append(answer)
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def gateway(binary: str, folder: Path) -> Iterator[tuple[Plane, str]]:
    """A plane with a gateway, and the gateway's URL."""
    port = free_port()
    live = Plane(binary, folder / "plane", "--gateway-listen", f"127.0.0.1:{port}")
    live.start()
    try:
        yield live, f"http://127.0.0.1:{port}"
    finally:
        live.stop()


def open_run(plane: Plane, run: str, url: str) -> None:
    """Open a run of the sample pack whose turns a server samples."""
    file = plane.dir / f"{run}.yaml"
    file.write_text(RUN.format(url=url))
    plane.command("run", "open", run, "--file", str(file), "--tasks", str(ROOT / "demo/packs/sample"))
