"""Runs of Rondo against the real vLLM on CPU: contract_vllm.py RONDO MODEL FOLDER. README.md says what is checked."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from check import CONTEXT, Check, Engine, free_port
from plane import until
from proxy import Exchange
from safetensors.torch import load_file

import rondo

GENERATE, CHAT = "/inference/v1/generate", "/v1/chat/completions"
RENDER, DERENDER = f"{CHAT}/render", f"{CHAT}/derender"
#: A turn that goes on until max_tokens, so that there is time to do something to the server.
LONG = {"sampling": {"max_tokens": 500, "extra_body": {"ignore_eos": True}}, "limits": {"turns": 1}, "endpoint_api": "tokens"}


class VLLM(Engine):
    def __init__(self, model: Path, folder: Path, port: int = 0, words: tuple[Any, ...] = (), **more: str) -> None:
        port = port or free_port()
        # Dev mode has /pause and /collective_rpc. Threads that are bound to cores make each other wait on a small machine.
        variables = {
            **os.environ,
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_NUM_THREADS": "2",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            **more,
        }
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server",
            "--model", model, "--served-model-name", "toy", "--dtype", "float32", "--enforce-eager",
            "--host", "127.0.0.1", "--port", port, "--max-model-len", CONTEXT, "--enable-scale-out",
            "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
            "--logprobs-mode", "processed_logprobs", *words,
        ]  # fmt: skip
        super().__init__(f"vllm-{version('vllm-cpu')}", port, command, variables, folder / "vllm.log")

    def tokens(self) -> float:
        """How many tokens it has sampled, also of requests that are not over."""
        for line in self.ask("GET", "/metrics").splitlines():
            if line.startswith("vllm:generation_tokens_total"):
                return float(line.split()[-1])
        raise AssertionError("vLLM counts no tokens")

    def load(self, folder: Path, number: int) -> None:
        """Take up new weights while it samples, as its trainers do."""
        self.ask("POST", "/pause?mode=keep")
        self.ask(
            "POST", "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder), "is_checkpoint_format": True}}
        )
        self.ask("POST", "/update_weight_version", {"new_version": str(number)})
        self.ask("POST", "/resume")


class CheckVLLM(Check):
    engine: VLLM

    def sampled(self, exchange: Exchange) -> list[int] | None:
        choice, prompt = exchange.answer()["choices"][0], exchange.request().get("token_ids", [])
        if choice["finish_reason"] == "abort":
            return None
        begun: list[int] = next((part for part in self.aborted() if part and prompt[-len(part) :] == part), [])
        return begun + choice["token_ids"]

    def aborted(self) -> list[list[int]]:
        """What it had sampled of the turns that it gave up."""
        choices = [e.answer()["choices"][0] for e in self.proxy.answers(GENERATE)]
        return [choice["token_ids"] for choice in choices if choice["finish_reason"] == "abort"]

    def tokens(self) -> None:
        self.open("tokens", 6, endpoint_api="tokens", limits={"turns": 6})
        found = self.turns("tokens", 6, GENERATE)
        self.one_sample(found)
        self.keep_turn()
        assert not any("seed" in e.request()["sampling_params"] for e in self.proxy.answers(GENERATE)), "a seed was sent"

    def keep_turn(self) -> None:
        """Keep the three answers of one first turn with a call."""
        for read in self.proxy.answers(DERENDER):
            asked = next(
                e for e in self.proxy.answers(GENERATE) if self.sampled(e) == read.request()["generate_response"]["choices"][0]["token_ids"]
            )
            rendered = [e for e in self.proxy.answers(RENDER) if e.answer()["token_ids"] == asked.request()["token_ids"]]
            if rendered and read.answer()["choices"][0]["message"].get("tool_calls"):
                for name, exchange in ("render", rendered[0]), ("generate", asked), ("derender", read):
                    self.keep(name, exchange.answered)

    def chat(self) -> None:
        self.open("chat", 6, limits={"turns": 6}, sampling={"temperature": 0.8})
        found = self.turns("chat", 6, CHAT, 0.8)
        self.keep("chat", next(e for e in self.proxy.answers(CHAT) if e.answer()["choices"][0]["message"].get("tool_calls")).answered)
        assert any(turn.get("reasoning") for turns in found.values() for turn in turns), "there are no thoughts"

    def during(self, tokens: int) -> None:
        """Wait until it has sampled so many tokens from now on."""
        before = self.engine.tokens()
        until(f"vLLM has sampled {tokens} tokens", lambda: self.engine.tokens() >= before + tokens)

    def spans(self) -> None:
        """New weights in the middle of turns: the log has vLLM's spans, and each token the log-probability of its own version."""
        with rondo.Client(self.plane.folder, wait=60) as client:
            for version in (1, 2, 3):
                client.publish_weights(
                    "toy", load_file(self.weights(version) / "model.safetensors"), run="tokens", version=version, through_step=version
                )
        self.engine.load(self.weights(1), 1)
        self.open("spans", 2, **LONG)
        for version in (2, 3):
            self.during(200)
            self.engine.load(self.weights(version), version)
        found = self.turns("spans", 2, GENERATE)
        own = sorted(
            [(int(s["version"]), s["start"], s["end"]) for s in e.answer()["choices"][0]["weight_versions"]]
            for e in self.proxy.answers(GENERATE)
        )
        kept = sorted([(s["version"], s["start"], s["end"]) for s in turn["version_spans"]] for turns in found.values() for turn in turns)
        print(f"spans: {kept}", flush=True)
        self.keep("spans", self.proxy.answers(GENERATE)[0].answered)
        assert kept == own, f"the engine says {own}"
        assert all([v for v, _, _ in spans] == [1, 2, 3] for spans in kept), "not all versions are there"

    def abort(self) -> None:
        """A turn that the server gives up goes on from its tokens, and costs no try."""
        self.open("abort", 2, **LONG)
        self.during(50)
        self.engine.ask("POST", "/pause?mode=abort")
        self.engine.ask("POST", "/resume")
        found = self.turns("abort", 2, GENERATE)
        parts = self.aborted()
        assert any(parts), "no turn was aborted"
        for part in parts:
            assert any(turn["token_ids"][: len(part)] == part for turns in found.values() for turn in turns), (
                "what an aborted turn had sampled is lost"
            )
        self.keep("abort", next(e for e in self.proxy.answers(GENERATE) if e.answer()["choices"][0]["finish_reason"] == "abort").answered)
        print(f"abort: {len(parts)} turns were given up with {[len(part) for part in parts]} tokens, and went on", flush=True)

    def context(self) -> None:
        """The limit is vLLM's own, and a rollout that reaches it ends there."""
        self.open("context", 1, **{**LONG, "limits": {"turns": 6}, "sampling": {"max_tokens": CONTEXT, "extra_body": {"ignore_eos": True}}})
        (turns,) = self.turns("context", 1, GENERATE).values()
        (end,) = self.plane.events("context", "rollout.finished")
        assert end["data"]["stop_reason"] == "context", end
        assert turns[-1]["prompt_tokens"] + turns[-1]["completion_tokens"] == CONTEXT - 1, (
            "Rondo leaves one token free, because some servers need it"
        )
        long = {"model": "toy", "max_tokens": 10, "messages": [{"role": "user", "content": "again and " * CONTEXT}]}
        self.keep("context", self.engine.refusal(CHAT, long))
        self.keep("models", self.engine.ask("GET", "/v1/models").encode())


def main(binary: Path, model: Path, folder: Path) -> None:
    check = CheckVLLM(VLLM(model, folder), binary, model, folder)
    try:
        for step in (check.tokens, check.chat, check.spans, check.abort, check.context):
            step()
    finally:
        check.end()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
