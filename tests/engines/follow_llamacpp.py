"""llama.cpp follows a policy: follow_llamacpp.py RONDO MODEL FOLDER SERVER SOURCES. README.md says what is checked."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

import exact
import torch
from check import CONTEXT, free_port
from contract_llamacpp import COMPLETION
from follow import OTHER, SideCar, Trainer
from plane import Plane, until
from proxy import Proxy

VERSIONS = 3


class Follow:
    """The server is started by the side-car's command alone."""

    def __init__(self, rondo: Path, model: Path, folder: Path, server: Path, sources: Path) -> None:
        port = free_port()
        self.folder, self.proxy, self.plane = folder, Proxy(port), Plane(rondo, folder)
        self.trainer = Trainer(self.plane, model, folder / "trained")
        command = " ".join(map(str, [sys.executable, Path(__file__).with_name("restart_llama.py"), sources, server, folder, port, CONTEXT]))
        words = ["--engine", "command", "--exec", command, "--engine-url", f"http://127.0.0.1:{port}", "--replica", self.proxy.url]
        self.side = SideCar(self.plane, "toy", folder / "served", *words)

    def end(self) -> None:
        self.side.process.kill()
        self.plane.end()
        if (self.folder / "running").exists():
            self.kill()

    def kill(self) -> None:
        os.kill(int((self.folder / "running").read_text()), signal.SIGKILL)

    def right(self, version: int) -> float:
        """The token that the server gives behind a text has the log-probability of the version."""
        body = {"prompt": OTHER, "n_predict": 1, "n_probs": 1, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "return_tokens": True}
        request = urllib.request.Request(
            self.proxy.url.removesuffix("/v1") + COMPLETION, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        found: list[dict[str, Any]] = []
        while not found:  # a token that is a part of a character has none
            with urllib.request.urlopen(request, timeout=600) as answered:
                found = json.loads(answered.read()).get("completion_probabilities", [])
        said = found[0]
        with torch.inference_mode():
            row = self.trainer.model(version)(torch.tensor([OTHER])).logits[0, -1].log_softmax(-1)
        off = abs(float(row[said["id"]]) - float(said["logprob"]))
        assert off < exact.CLOSE, f"version {version}: a log-probability is {off} away"
        return off

    def versions(self) -> None:
        self.plane.open("first", self.proxy.url, 1, steps=0)
        took, worst = [], 0.0
        for version in range(1, VERSIONS + 1):
            self.trainer.publish(version, "first")
            took.append(float(self.side.activated(version)["seconds"]))
            worst = max(worst, self.right(version))
            if version == 1:
                self.plane.open("serves", self.proxy.url, 6, endpoint_api="tokens", limits={"turns": 6})
        print(
            f"{VERSIONS} versions by restart: log-probabilities within {worst:.1e}; "
            f"one takes {median(took):.2f} s (at most {max(took):.2f})",
            flush=True,
        )

    def restarts(self) -> None:
        """Killed, it is started again with its version, and gets no turn before."""
        self.kill()
        self.side.activated(VERSIONS, 2)
        print(f"killed: back at version {VERSIONS} within {self.right(VERSIONS):.1e}", flush=True)
        found = self.plane.finished("serves", 6)
        counts: dict[int, int] = {}
        for turns in found.values():
            for at, turn in enumerate(turns):
                of = [v for v in range(1, VERSIONS + 1) if self.fits(turns[: at + 1], v)]
                assert of, f"turn {turn['turn']} is of no version: {turn['logprobs'][:5]}"
                counts[of[0]] = counts.get(of[0], 0) + 1
        print(f"turns: {counts} by version", flush=True)

    def fits(self, turns: list[dict[str, Any]], version: int) -> bool:
        """Whether the last of some turns has the log-probabilities of a version."""
        ids = [i for t in exact.samples(turns)[-1] for i in [*t.get("prompt_delta", []), *t["token_ids"]]]
        said = torch.tensor(turns[-1]["logprobs"])
        with torch.inference_mode():
            rows = self.trainer.model(version)(torch.tensor([ids])).logits[0, -len(said) - 1 : -1].log_softmax(-1)
        return bool((rows.gather(1, torch.tensor(ids[-len(said) :])[:, None])[:, 0] - said).abs().max() < exact.CLOSE)


def main(rondo: Path, model: Path, folder: Path, server: Path, sources: Path) -> None:
    check = Follow(rondo, model, folder, server, sources)
    try:
        check.versions()
        until("turns are sampled", lambda: check.plane.events("serves", "rollout.turn_sampled"))
        check.restarts()
    finally:
        check.end()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
