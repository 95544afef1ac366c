"""An inference server with a published template: vLLM's paths of tokens, and a model that says a script in its family's exact format."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from conversation import TURNS, calls_before
from families import Message, Model


@dataclass
class Turn:
    """What the model was asked with, and what it said."""

    prompt: list[int]
    sampled: list[int]
    logprobs: list[float]


@dataclass
class Server:
    model: Model
    #: As vLLM 0.32: a rendering has no parse_context, and a request of its own reads the message.
    older: bool
    turns: list[Turn] = field(default_factory=list)
    #: The longest conversation that was rendered for an answer, and the tools in it.
    messages: list[Message] = field(default_factory=list)
    tools: list[Message] = field(default_factory=list)

    def models(self) -> Any:
        return {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 65536}]}

    def render(self, asked: Any) -> Any:
        prompts = asked.get("add_generation_prompt", True)
        if (
            prompts
            and len(asked["messages"]) >= len(self.messages)
            and any("reasoning" in m for m in asked["messages"]) >= any("reasoning" in m for m in self.messages)
        ):
            self.messages, self.tools = asked["messages"], asked.get("tools", [])
        answer = {
            "token_ids": self.model.render(asked["messages"], asked.get("tools", []), prompts),
            "sampling_params": {"max_tokens": asked["max_tokens"], "temperature": 1.0, "logprobs": asked["top_logprobs"]},
            "model": asked["model"], "output_mode": "tokens", "token_offsets": None,
        }  # fmt: skip
        return answer if self.older else {**answer, "parse_context": {"tools": asked.get("tools", [])}}

    def generate(self, asked: Any) -> Any:
        prompt = asked["token_ids"]
        number = self.turn(prompt)
        sampled = self.model.sampled(TURNS[number][0], prompt, calls_before(number))
        logprobs = [-((i + 3 * number) % 7) / 8 for i in range(len(sampled))]
        self.turns = [*self.turns[:number], Turn(prompt, sampled, logprobs)]
        entries = [{"token_id": token, "logprob": logprob, "top_logprobs": []} for token, logprob in zip(sampled, logprobs, strict=True)]
        choice = {"index": 0, "token_ids": sampled, "finish_reason": "stop", "stop_reason": None, "logprobs": {"content": entries}}
        assert asked["output_mode"] == ("tokens" if self.older else "derender"), asked["output_mode"]
        if not self.older:
            choice |= self.read(sampled, prompt, asked["parse_context"]["tools"])
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)}
        return {"model": "m", "prompt_token_ids": prompt, "choices": [choice], "usage": usage}

    def turn(self, prompt: Sequence[int]) -> int:
        """The number of the turn behind a prompt: that after the turn whose tokens it goes on with, and 0 where it goes on with none."""
        for number, turn in reversed(list(enumerate(self.turns))):
            known = turn.prompt + turn.sampled
            if prompt[: len(known)] == known:
                return number + 1
        return 0

    def read(self, sampled: Sequence[int], prompt: Sequence[int], tools: Sequence[Message]) -> Any:
        message = self.model.read(sampled, prompt, tools, f"call-{len(prompt)}")
        return {"message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}

    def derender(self, asked: Any) -> Any:
        said = asked["generate_response"]
        return {
            "choices": [
                {"index": 0, **self.read(said["choices"][0]["token_ids"], said["prompt_token_ids"], asked["chat_request"].get("tools", []))}
            ]
        }


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """The base URL of a server that answers until it is left."""
    paths = {
        "/v1/chat/completions/render": server.render,
        "/inference/v1/generate": server.generate,
        "/v1/chat/completions/derender": server.derender,
    }
    mutex = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(200, server.models()) if self.path == "/v1/models" else self.send_error(404)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path not in paths:
                return self.send_error(404)
            try:
                with mutex:
                    self.answer(200, paths[self.path](asked))
            except Exception as error:  # the template or the parser refuses what Rondo asks for: the rollout fails with its words
                self.answer(400, {"error": {"message": f"{type(error).__name__}: {error}", "code": 400}})

        def answer(self, status: int, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}/v1"
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
