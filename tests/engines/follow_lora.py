"""vLLM on CPU serves the adapters of two policies on one base: follow_lora.py RONDO MODEL FOLDER. README.md says what is checked."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import exact
import torch
from contract_vllm import GENERATE, VLLM, CheckVLLM
from follow import OTHER, PROBE, SideCar, Trainer, logprobs
from plane import until
from safetensors.torch import load_file, save_file

POLICIES = ("red", "blue")
VERSIONS, RANK, ALPHA = 5, 4, 8
MODULES = [
    f"model.layers.{layer}.{module}"
    for layer in range(2)
    for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj")
]


class Adapters(Trainer):
    """Publishes adapters, each with random matrices of its own."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.model = cache(self.merged)

    def matrices(self, version: int) -> dict[str, torch.Tensor]:
        chance = torch.Generator().manual_seed(1000 * POLICIES.index(self.policy) + version)
        base, found = load_file(self.base / "model.safetensors"), {}
        for module in MODULES:
            out, into = base[f"{module}.weight"].shape
            found[f"{module}.lora_A"] = torch.randn(RANK, into, generator=chance) / into**0.5
            found[f"{module}.lora_B"] = 0.02 * torch.randn(out, RANK, generator=chance)
        return found

    def merged(self, version: int) -> Any:
        """The base with the adapter added, for transformers; the base alone where no version is known."""
        model, m = exact.model(self.base), self.matrices(version)
        with torch.no_grad():
            for module in MODULES if version > 0 else []:
                model.get_parameter(f"{module}.weight").add_(ALPHA / RANK * m[f"{module}.lora_B"] @ m[f"{module}.lora_A"])
        return model

    def weights(self, version: int) -> Path:
        folder = self.folder / f"v{version}"
        if not folder.exists():
            folder.mkdir()
            save_file(
                {f"base_model.model.{name}.weight": t for name, t in self.matrices(version).items()}, folder / "adapter_model.safetensors"
            )
            about = {
                "peft_type": "LORA",
                "task_type": "CAUSAL_LM",
                "base_model_name_or_path": "toy",
                "r": RANK,
                "lora_alpha": ALPHA,
                "bias": "none",
                "target_modules": sorted({m.rpartition(".")[2] for m in MODULES}),
            }
            (folder / "adapter_config.json").write_text(json.dumps(about))
            said = {"tokens": PROBE, "logprobs": logprobs(self.model(version), PROBE), "tolerance": exact.CLOSE}
            (folder / "fingerprint.json").write_text(json.dumps(said))
        return folder


class Follow(CheckVLLM):
    def __init__(self, engine: VLLM, rondo: Path, model: Path, folder: Path) -> None:
        super().__init__(engine, rondo, model, folder)
        base = self.proxy.url.removesuffix("/v1")
        self.trainers = {p: Adapters(self.plane, model, folder / p, p) for p in POLICIES}
        self.sides = {p: SideCar(self.plane, p, folder / f"served-{p}", "--engine", "vllm-lora", "--engine-url", base) for p in POLICIES}
        self.runs: dict[str, str] = {}

    def end(self) -> None:
        for side in self.sides.values():
            side.process.kill()
        super().end()

    def serve(self, policy: str, **settings: Any) -> str:
        run = f"{policy}{len(self.runs)}"
        self.runs[run] = policy
        self.plane.open(run, self.proxy.url, 4, policy=policy, endpoint_api="tokens", **{"limits": {"turns": 6}, **settings})
        return run

    def loaded(self) -> list[str]:
        return sorted(m["id"] for m in json.loads(self.engine.ask("GET", "/v1/models"))["data"] if "@" in m["id"])

    def right(self, policy: str, version: int) -> float:
        """Some tokens behind a text have the version's log-probabilities. vLLM ends when asked for those of a prompt with an adapter."""
        off = 0.0
        for end in range(20, len(OTHER), 20):
            asked = {
                "model": f"{policy}@{version}",
                "prompt": OTHER[:end],
                "max_tokens": 1,
                "temperature": 1,
                "logprobs": 0,
                "return_token_ids": True,
            }
            choice = json.loads(self.engine.ask("POST", "/v1/completions", asked))["choices"][0]
            with torch.inference_mode():
                row = self.trainers[policy].model(version)(torch.tensor([OTHER[:end]])).logits[0, -1].log_softmax(-1)
            off = max(off, abs(float(row[choice["token_ids"][0]]) - float(choice["logprobs"]["token_logprobs"][0])))
        assert off < exact.CLOSE, f"{policy}@{version}: a log-probability is {off} away"
        return off

    def versions(self) -> None:
        """Two policies follow their versions, and turns ask for them by name."""
        took, worst = [], 0.0
        for policy in POLICIES:
            self.plane.open(f"first-{policy}", self.proxy.url, 1, policy=policy, steps=0)
        for version in range(1, VERSIONS + 1):
            for policy in POLICIES:
                self.trainers[policy].publish(version, f"first-{policy}")
                took.append(float(self.sides[policy].activated(version)["seconds"]))
                worst = max(worst, self.right(policy, version))
                if version in (1, 4):
                    self.serve(policy)
        want = sorted(f"{p}@{v}" for p in POLICIES for v in (VERSIONS - 1, VERSIONS))
        assert self.loaded() == want, f"it has {self.loaded()}, want {want}"
        print(
            f"{VERSIONS} versions of {len(POLICIES)} policies: within {worst:.1e}; "
            f"an adapter takes {median(took):.2f} s (at most {max(took):.2f})",
            flush=True,
        )

    def holds(self) -> None:
        """An adapter that a long turn holds stays, however many versions come."""
        long = {"sampling": {"max_tokens": 900, "extra_body": {"ignore_eos": True}}, "limits": {"turns": 1}}
        run = self.serve("red", **long)
        self.during(50)
        version = VERSIONS + 1
        self.trainers["red"].publish(version, "first-red")
        self.sides["red"].activated(version)
        self.trainers["red"].publish(version + 1, "first-red")
        until(
            "no adapter can be unloaded, or the turn is over",
            lambda: self.sides["red"].notes("failed") or self.plane.events(run, "rollout.turn_sampled"),
        )
        held = self.sides["red"].notes("failed")
        assert held and "hold" in held[0]["error"], f"the turn was too short: {held}"
        assert f"red@{VERSIONS}" in self.loaded(), f"the adapter was taken from a request: {self.loaded()}"
        self.sides["red"].activated(version + 1)
        self.plane.finished(run, 4)
        print(f"held: {held[0]['error'][-120:]}", flush=True)

    def restarts(self, base: Path) -> None:
        for policy in POLICIES:
            self.serve(policy)
        self.during(50)
        self.engine.kill()
        until("the side-cars have noticed", lambda: all(side.notes("lost") for side in self.sides.values()))
        self.engine = lora(base, self.folder, self.engine.port)
        self.engine.wait()
        for policy, last in ("red", VERSIONS + 2), ("blue", VERSIONS):
            self.sides[policy].activated(last, 2)
            self.right(policy, last)
        print("killed: both policies are back", flush=True)

    def held_to_the_model(self) -> None:
        for run, policy in self.runs.items():
            self.model = self.trainers[policy].model
            found = self.turns(run, 4, GENERATE)
            assert all(turn["policy_version"] >= 1 for turns in found.values() for turn in turns), f"{run}: a turn is of no version"


def lora(model: Path, folder: Path, port: int = 0) -> VLLM:
    words = ("--enable-lora", "--max-loras", "4", "--max-cpu-loras", "8", "--max-lora-rank", "8")
    return VLLM(model, folder, port, words, VLLM_ALLOW_RUNTIME_LORA_UPDATING="1")


def main(binary: Path, model: Path, folder: Path) -> None:
    check = Follow(lora(model, folder), binary, model, folder)
    try:
        check.versions()
        check.holds()
        check.restarts(model)
        check.held_to_the_model()
    finally:
        check.end()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
