"""The shared part of all engines' checks: a plane, a proxy before the engine, and turns compared with the engine and transformers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import exact
import torch
from plane import Plane, until
from proxy import Exchange, Proxy
from safetensors.torch import load_file, save_file

#: Tokens of prompt and answer together: 800 of the prompt, and a long turn. llama.cpp takes the next multiple of 256.
CONTEXT = 1408
Turns = dict[str, list[dict[str, Any]]]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Engine:
    """A server that is started, and asked directly."""

    def __init__(self, name: str, port: int, words: list[Any], variables: dict[str, str], log: Path) -> None:
        self.name, self.port = name, port
        with log.open("w") as out:
            self.process = subprocess.Popen([str(w) for w in words], stdout=out, stderr=out, env=variables, start_new_session=True)
        self.log = log

    def kill(self) -> None:
        """End it and all its processes as a machine does that fails."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self) -> None:
        until(f"{self.name} answers", self.answers)

    def answers(self) -> bool:
        assert self.process.poll() is None, f"{self.name} has ended: {self.log.read_text()[-2000:]}"
        try:
            return bool(self.ask("GET", "/v1/models"))
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.read().decode()

    def refusal(self, path: str, body: Any) -> bytes:
        """The answer to a request that it does not take."""
        try:
            raise AssertionError(f"{self.name} takes what does not fit: {self.ask('POST', path, body)[:200]}")
        except urllib.error.HTTPError as refused:
            return refused.read()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:  # vLLM's server waits for a request whose engine has ended
            self.kill()


class Check:
    def __init__(self, engine: Engine, rondo: Path, model: Path, folder: Path) -> None:
        self.engine, self.base, self.folder = engine, model, folder
        self.rewrite = os.environ.get("RONDO_REWRITE")  # where the answers are kept that the ordinary tests read
        try:
            engine.wait()
            self.proxy = Proxy(engine.port)
            self.plane = Plane(rondo, folder)
        except BaseException:
            engine.end()
            raise
        self.model = cache(lambda version: exact.model(self.weights(version)))

    def end(self) -> None:
        self.plane.end()
        self.engine.end()

    def weights(self, version: int) -> Path:
        """The folder of a version: the toy with some noise, and the toy itself where no version is known."""
        folder = self.folder / f"v{version}"
        if version <= 0:
            return self.base
        if not folder.exists():
            folder.mkdir()
            chance = torch.Generator().manual_seed(version)
            changed = {
                name: t + 0.05 * t.std() * torch.randn(t.shape, generator=chance)
                for name, t in load_file(self.base / "model.safetensors").items()
            }
            save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
            (folder / "config.json").write_text((self.base / "config.json").read_text())
        return folder

    def keep(self, name: str, answer: bytes) -> None:
        """Keep an answer for the ordinary tests, where that is asked for."""
        if self.rewrite:
            (Path(self.rewrite) / f"{self.engine.name}-{name}.json").write_bytes(answer)

    def sampled(self, exchange: Exchange) -> list[int] | None:
        """The tokens that the engine says it sampled; None where it gave the turn up."""
        raise NotImplementedError

    def open(self, run: str, rollouts: int, **settings: Any) -> None:
        self.proxy.said.clear()
        self.plane.open(run, self.proxy.url, rollouts, **settings)

    def turns(self, run: str, rollouts: int, path: str, temperature: float = 1) -> Turns:
        """The turns of a run. They are the engine's answers, with the log-probabilities that their versions of the model give them."""
        found = self.plane.finished(run, rollouts)
        texts = [turn for turns in found.values() for turn in turns if turn.get("text_only")]
        assert not texts, f"{run}: a turn has no tokens: {texts[0].get('lacks')}"
        own = Counter(tuple(ids) for e in self.proxy.answers(path) if (ids := self.sampled(e)) is not None)
        kept = Counter(tuple(turn["token_ids"]) for turns in found.values() for turn in turns)
        assert kept <= own, f"{run}: the log has tokens that the engine did not sample"  # it was asked for more to measure its distribution
        most, count = exact.gap(found, self.model, temperature)
        counts = [len(exact.samples(turns)) for turns in found.values()]
        causes = sorted({turn["segment_cause"] for turns in found.values() for turn in turns if "segment_cause" in turn})
        print(
            f"{run}: {kept.total()} turns of {len(found)} rollouts, which are {counts} samples {causes}; "
            f"{count} tokens, the largest difference is {most:.1e}",
            flush=True,
        )
        assert most < exact.CLOSE, f"{run}: a log-probability is {most} away from the model's"
        return found

    def one_sample(self, found: Turns) -> None:
        assert all(len(exact.samples(turns)) == 1 for turns in found.values()), "a rollout is several samples"
        assert max(map(len, found.values())) > 1, "no rollout has several turns"
