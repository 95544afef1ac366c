"""Runs of Rondo against the real llama-server: contract_llamacpp.py RONDO MODEL FOLDER SERVER GGUF. README.md says what is checked."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from check import CONTEXT, Check, Engine, free_port
from llama import command
from proxy import Exchange

#: That of the package which ships the sources: run names the same one.
VERSION = "0.3.36"
COMPLETION, CHAT = "/completion", "/v1/chat/completions"


def llama(server: Path, gguf: Path, folder: Path) -> Engine:
    port = free_port()
    return Engine(f"llamacpp-{VERSION}", port, command(server, gguf, port, CONTEXT), dict(os.environ), folder / "llamacpp.log")


class CheckLlama(Check):
    def sampled(self, exchange: Exchange) -> list[int] | None:
        return list(exchange.answer()["tokens"])

    def tokens(self) -> None:
        self.open("tokens", 6, endpoint_api="tokens", limits={"turns": 6}, sampling={"temperature": 0.8})
        found = self.turns("tokens", 6, COMPLETION, 0.8)
        self.one_sample(found)
        assert any(turn.get("tool_calls") and turn.get("reasoning") for turns in found.values() for turn in turns), (
            "there are no thoughts or no calls"
        )
        assert not any("seed" in e.request() for e in self.proxy.answers(COMPLETION)), "a seed was sent"

    def one(self) -> None:
        """Keep all answers of one turn with a call, in their order: rollouts of other runs ask at the same time."""
        for i in range(20 if self.rewrite else 0):
            self.open(f"one{i}", 1, endpoint_api="tokens", limits={"turns": 1})
            self.plane.finished(f"one{i}", 1)
            said = [e for e in self.proxy.said if e.path != "/v1/models"]
            turn = said[: next(at for at, e in enumerate(said) if e.path == CHAT) + 1]
            if turn[-1].status == 200 and turn[-1].answer()["choices"][0]["message"].get("tool_calls"):
                self.keep("turn", json.dumps([{"path": e.path, "answer": e.answer()} for e in turn]).encode())
                return

    def chat(self) -> None:
        """Its chat gives no token ids: rollouts with thoughts and tools are recorded and scored, and nothing is trained on."""
        self.open("chat", 4, limits={"turns": 4})
        found = self.plane.finished("chat", 4)
        turns = [turn for rollout in found.values() for turn in rollout]
        assert all(turn.get("text_only") for turn in turns), "chat has token ids"
        assert any(turn.get("reasoning") for turn in turns), "there are no thoughts"
        assert any(turn.get("tool_calls") for turn in turns), "there are no tool calls"
        self.keep("chat", next(e for e in self.proxy.answers(CHAT) if e.answer()["choices"][0]["message"].get("tool_calls")).answered)
        print(f"chat: {len(turns)} turns of {len(found)} rollouts as text", flush=True)

    def context(self) -> None:
        """The limit is that of a slot, and a rollout that reaches it ends there."""
        self.open("context", 1, sampling={"max_tokens": CONTEXT, "extra_body": {"ignore_eos": True}}, limits={"turns": 6})
        self.plane.finished("context", 1)
        (end,) = self.plane.events("context", "rollout.finished")
        assert end["data"]["stop_reason"] == "context", end
        for refused in self.proxy.answers(CHAT, 400):
            self.keep("context", refused.answered)
        self.keep("models", self.engine.ask("GET", "/v1/models").encode())
        print("context: the rollout ends at the server's own limit", flush=True)


def main(rondo: Path, model: Path, folder: Path, server: Path, gguf: Path) -> None:
    check = CheckLlama(llama(server, gguf, folder), rondo, model, folder)
    try:
        for step in (check.tokens, check.one, check.chat, check.context):
            step()
    finally:
        check.end()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
