"""vLLM on CPU follows a policy while it serves: follow_vllm.py RONDO MODEL FOLDER. README.md says what is checked."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import uuid
from pathlib import Path
from statistics import median
from typing import Any

import exact
import torch
from contract_vllm import GENERATE, VLLM, CheckVLLM
from follow import OTHER, SideCar, Trainer, apart, flip, logprobs
from plane import until
from safetensors.torch import load_file, save_file

VERSIONS = 20
LIMITS = {"endpoint_api": "tokens", "limits": {"turns": 6}}


class Follow(CheckVLLM):
    def __init__(self, engine: VLLM, rondo: Path, model: Path, folder: Path) -> None:
        super().__init__(engine, rondo, model, folder)
        self.trainer = Trainer(self.plane, model, folder / "trained")
        self.model = self.trainer.model
        self.runs: list[str] = []
        base = self.proxy.url.removesuffix("/v1")
        self.side = SideCar(self.plane, "toy", folder / "served", "--engine", "vllm", "--engine-url", base, "--base", model)

    def end(self) -> None:
        self.side.process.kill()
        super().end()

    def serve(self, rollouts: int = 6) -> None:
        """Open a run more. They are held to the model at the end."""
        self.runs.append(f"follow{len(self.runs)}")
        self.plane.open(self.runs[-1], self.proxy.url, rollouts, **LIMITS)

    def label(self) -> str:
        return str(json.loads(self.engine.ask("GET", "/weight_info"))["weight_version"])

    def probe(self) -> list[float]:
        """What the server gives to a text: its log-probabilities without the cache, and that of a token behind it with the cache."""
        asked: dict[str, Any] = {"model": "toy", "prompt": OTHER, "max_tokens": 1, "temperature": 1, "return_token_ids": True}
        uncached = {**asked, "prompt_logprobs": 0, "cache_salt": uuid.uuid4().hex}
        fresh = json.loads(self.engine.ask("POST", "/v1/completions", uncached))["choices"][0]
        return [at[str(token)]["logprob"] for token, at in zip(OTHER[1:], fresh["prompt_logprobs"][1:], strict=True)]

    def cached(self, version: int) -> float:
        """How far the log-probability of a token behind a text is from the version's, where the server may use its cache of the text."""
        asked = {"model": "toy", "prompt": OTHER, "max_tokens": 1, "temperature": 1, "return_token_ids": True, "logprobs": 0}
        choice = json.loads(self.engine.ask("POST", "/v1/completions", asked))["choices"][0]
        with torch.inference_mode():
            row = self.model(version)(torch.tensor([OTHER])).logits[0, -1].log_softmax(-1)
        return abs(float(row[choice["token_ids"][0]]) - float(choice["logprobs"]["token_logprobs"][0]))

    def right(self, version: int) -> float:
        """The server has the version's label and log-probabilities."""
        assert self.label() == str(version), f"the label is {self.label()}, want {version}"
        own = self.model(version)
        off = max(apart(self.probe(), logprobs(own, OTHER)), self.cached(version))
        assert off < exact.CLOSE, f"version {version}: a log-probability is {off} away"
        return off

    def versions(self) -> None:
        """It follows versions while it serves."""
        worst, took = 0.0, []
        self.plane.open("first", self.proxy.url, 1, steps=0)
        for version in range(1, VERSIONS + 1):
            self.trainer.publish(version, "first")
            took.append(float(self.side.activated(version).get("seconds", 0)))
            worst = max(worst, self.right(version))
            if not self.runs or len(self.plane.events(self.runs[-1], "rollout.scored")) >= 6:
                self.serve()
        assert apart(logprobs(self.model(1), OTHER), logprobs(self.model(VERSIONS), OTHER)) > 100 * exact.CLOSE, (
            "the versions do not differ"
        )
        asked = [e for e in self.proxy.said if e.path.startswith(("/pause", "/resume"))]
        pauses = [b.ended - a.began for a, b in zip(asked[::2], asked[1::2], strict=True)]
        deltas = len([n for n in self.side.notes("fetched") if n.get("deltas")])
        print(
            f"{VERSIONS} versions: {deltas} by deltas, log-probabilities within {worst:.1e}; "
            f"to load one takes {median(took):.2f} s (at most {max(took):.2f}), "
            f"paused for {median(pauses):.2f} s (at most {max(pauses):.2f})",
            flush=True,
        )

    def restarts(self, base: Path) -> None:
        """Killed and started again, it gets no turn before it is back at the newest version, which was published meanwhile."""
        self.serve()
        self.during(50)
        self.engine.kill()
        until("the side-car has noticed", lambda: self.side.notes("lost"))
        before = len(self.proxy.answers(GENERATE))
        self.trainer.publish(VERSIONS + 1, "first")
        self.engine = VLLM(base, self.folder, self.engine.port)
        self.engine.wait()
        self.side.activated(VERSIONS + 1)
        loaded = [e for e in self.proxy.said if e.path.startswith("/resume")][-1].ended
        early = [e for e in self.proxy.answers(GENERATE)[before:] if e.began < loaded]
        assert not early, f"{len(early)} turns were asked of a server that was not back"
        print(f"killed: back at version {VERSIONS + 1} within {self.right(VERSIONS + 1):.1e}, and no turn before", flush=True)

    def corrupt(self) -> None:
        """A version whose bytes are not those that were published changes nothing; mended, it is taken up."""
        version = VERSIONS + 2
        self.side.process.send_signal(signal.SIGSTOP)
        self.trainer.publish(version, "first")
        objects = self.trainer.stored(version)
        for file in objects:
            flip(file)
        self.side.process.send_signal(signal.SIGCONT)
        until("the side-car refuses the version", lambda: [n for n in self.side.notes("failed") if n.get("version") == version])
        self.right(version - 1)
        print(f"corrupt: {next(n for n in self.side.notes('failed') if n.get('version') == version)['error'][-160:]}", flush=True)
        for file in objects:
            flip(file)
        self.side.activated(version)
        self.right(version)

    def side_car_killed(self) -> None:
        """A side-car that is killed is replaced by one that goes on."""
        version = VERSIONS + 3
        self.trainer.publish(version, "first")
        self.side.stop(signal.SIGKILL)
        self.side.start()
        self.side.activated(version)
        self.right(version)

    def held(self) -> None:
        """All that was sampled meanwhile has the log-probabilities of its version."""
        for run in self.runs:
            found = self.turns(run, 6, GENERATE)
            versions = {
                s["version"]
                for turns in found.values()
                for t in turns
                for s in t.get("version_spans") or [{"version": t["policy_version"]}]
            }
            assert min(versions) >= 1, f"{run}: {versions}"


def tie(model: Path, folder: Path) -> Path:
    """The toy with an output layer that shares its weights with the input layer, as small models have it."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("complete"))
    weights = load_file(folder / "model.safetensors")
    save_file({name: t for name, t in weights.items() if name != "lm_head.weight"}, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    return folder


def tied(binary: Path, model: Path, folder: Path, extension: bool) -> None:
    """vLLM's reload leaves a tied model's output layer at the old version. The fingerprint finds that; the extension loads it whole."""
    folder.mkdir()
    base = tie(model, folder / "tied")
    check = Follow(VLLM(base, folder, words=("--worker-extension-cls", "rondo.vllm.Worker") if extension else ()), binary, base, folder)
    try:
        check.plane.open("first", check.proxy.url, 1, steps=0)
        for version in (1, 2) if extension else (1,):
            check.trainer.publish(version, "first")
            if extension:
                check.side.activated(version)
                print(f"tied: version {version} within {check.right(version):.1e} with the extension", flush=True)
        if not extension:
            until("the side-car refuses what the server has loaded", lambda: check.side.notes("failed"))
            said = check.side.notes("failed")[0]["error"]
            assert "fingerprint" in said and not check.side.notes("activated"), said
            print(f"tied: {said[:160]} (label {check.label()})", flush=True)
    finally:
        check.end()


def main(binary: Path, model: Path, folder: Path) -> None:
    for name, extension in ("alone", False), ("extended", True):
        tied(binary, model, folder / name, extension)
    check = Follow(VLLM(model, folder), binary, model, folder)
    try:
        check.versions()
        check.restarts(model)
        check.corrupt()
        check.side_car_killed()
        check.held()
    finally:
        check.end()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
