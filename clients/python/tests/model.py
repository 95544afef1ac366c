"""An inference server that says what a function says, with a token for each byte, as vLLM answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: What the model says to some messages: a text, or the tool calls ({"id", "name", "arguments"}) that it asks for.
Reply = Callable[[Sequence[Mapping[str, Any]]], Any]


@contextmanager
def serving(reply: Reply) -> Iterator[str]:
    """The base URL of a server that answers until it is left."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(_completion(asked["messages"], reply(asked["messages"]))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _completion(messages: Sequence[Mapping[str, Any]], said: Any) -> dict[str, Any]:
    content, calls = (said, []) if isinstance(said, str) else ("", said)
    prompt = [byte for m in messages for byte in _text(m)] + list(b"<assistant>")
    ids = list(_said(content, calls))
    called = [{"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls]
    return {
        "prompt_token_ids": prompt,
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if calls else "stop",
                "message": {"role": "assistant", "content": content, **({"tool_calls": called} if called else {})},
                "token_ids": ids,
                "logprobs": {"content": [{"token": f"token_id:{id}", "logprob": -0.5} for id in ids]},
            }
        ],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids)},
    }


def _said(content: str, calls: Sequence[Mapping[str, Any]]) -> bytes:
    return (content + "".join(f"{c['name']}({c['arguments']})" for c in calls) + "\n").encode()


def _text(message: Mapping[str, Any]) -> bytes:
    calls = [c["function"] for c in message.get("tool_calls") or []]
    return f"<{message['role']}>".encode() + _said(message.get("content") or "", calls)
