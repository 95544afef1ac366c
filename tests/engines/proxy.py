"""A proxy between Rondo and an engine, which remembers what both said: the log is held to the engine's own answers."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Exchange:
    path: str
    status: int
    asked: bytes
    answered: bytes
    began: float  # of time.monotonic
    ended: float

    def request(self) -> Any:
        return json.loads(self.asked)

    def answer(self) -> Any:
        """Say what was answered; the events of a stream as one answer, whose lists and texts are theirs together."""
        if not self.answered.startswith(b"data:"):
            return json.loads(self.answered)
        lines = [line.removeprefix(b"data:").strip() for line in self.answered.splitlines() if line.startswith(b"data:")]
        return joined([json.loads(line) for line in lines if line != b"[DONE]"])


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Join events of vLLM's and llama.cpp's, each of which has what is new."""
    parts = ("choices", "tokens", "token_ids", "content", "completion_probabilities")
    whole: dict[str, Any] = {}
    for event in events:
        for name, value in event.items():
            before = whole.get(name)
            if name == "choices" and before and value:
                whole[name] = [joined([before[0], value[0]])]
            elif name == "logprobs" and before and value:
                whole[name] = joined([before, value])
            elif name in parts and before is not None and value is not None:
                whole[name] = before + value
            elif value is not None or name not in whole:
                whole[name] = value
    return whole


class Proxy:
    """Passes requests on to a port of this machine; `said` are those that were answered, in the order of the answers.

    `before` is called with each request, which has no answer yet.
    """

    def __init__(self, port: int) -> None:
        self.said: list[Exchange] = []
        self.before: Callable[[Exchange], None] | None = None
        said, proxy = self.said, self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                engine, began = http.client.HTTPConnection("127.0.0.1", port, timeout=600), time.monotonic()
                if before := proxy.before:
                    before(Exchange(self.path, 0, asked, b"", began, began))
                try:
                    engine.request(self.command, self.path, asked or None, {"Content-Type": "application/json"})
                    response = engine.getresponse()
                    answered = response.read()
                except (OSError, http.client.HTTPException):
                    with suppress(ConnectionError):  # who asked may be gone
                        self.send_error(502, "the engine is away")
                    return
                said.append(Exchange(self.path, response.status, asked, answered, began, time.monotonic()))
                self.send_response(response.status)
                self.send_header("Content-Type", response.headers.get("Content-Type", "application/json"))
                self.send_header("Content-Length", str(len(answered)))
                self.end_headers()
                with suppress(ConnectionError):
                    self.wfile.write(answered)
                engine.close()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def answers(self, path: str, status: int = 200) -> list[Exchange]:
        return [e for e in self.said if e.path == path and e.status == status]
