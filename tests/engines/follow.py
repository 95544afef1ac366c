"""What the checks share that follow versions: a trainer that changes the toy a little, the side-car, and a probe."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import exact
import torch
from plane import Plane, until
from safetensors.torch import load_file, save_file

import rondo

#: The tokens of the probes, the fingerprint's and the test's own.
PROBE, OTHER = [list(range(first, 2000, 13))[:100] for first in (300, 305)]


class Trainer:
    """Publishes versions of the toy of which each differs from the one before in a fiftieth of its elements."""

    def __init__(self, plane: Plane, base: Path, folder: Path, policy: str = "toy") -> None:
        self.plane, self.base, self.folder, self.policy = plane, base, folder, policy
        folder.mkdir()
        self.model = cache(lambda version: exact.model(self.weights(version)))

    def weights(self, version: int) -> Path:
        folder = self.folder / f"v{version}"
        if version <= 0:
            return self.base
        if not folder.exists():
            before = load_file(self.weights(version - 1) / "model.safetensors")
            shutil.copytree(self.base, folder, ignore=shutil.ignore_patterns("complete"))
            chance = torch.Generator().manual_seed(version)
            changed = {}
            for name, t in before.items():
                some = torch.rand(t.shape, generator=chance) < 0.02
                changed[name] = t + some * 0.3 * t.std() * torch.randn(t.shape, generator=chance)
            save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
            said = {"tokens": PROBE, "logprobs": logprobs(exact.model(folder), PROBE), "tolerance": exact.CLOSE}
            (folder / "fingerprint.json").write_text(json.dumps(said))
        return folder

    def publish(self, version: int, run: str) -> None:
        with rondo.Client(self.plane.folder, wait=60) as client:
            client.publish_weights(self.policy, self.weights(version), run=run, version=version, through_step=version)

    def stored(self, version: int) -> list[Path]:
        """The objects of a version's tensors in the store: the file itself, and the delta that leads to it."""
        manifest = next(self.plane.folder.glob(f"**/weights/{self.policy}/v{version:06}/manifest.json"))
        digest = next(f["sha256"] for f in json.loads(manifest.read_text())["files"] if f["name"].endswith(".safetensors"))
        return [next(self.plane.folder.glob(f"**/weights/{self.policy}/files/{digest}")), *manifest.parent.glob("*delta*")]


def logprobs(model: Any, tokens: list[int]) -> list[float]:
    """What a model gives to the tokens behind the first one."""
    with torch.inference_mode():
        rows = model(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
    found: list[float] = rows.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()
    return found


def apart(one: list[float], other: list[float]) -> float:
    assert len(one) == len(other) > 0
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def flip(file: Path) -> None:
    """Change a byte of an object, or put it back."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)


class SideCar:
    """`rondo weights fetch --follow`, and what it says."""

    def __init__(self, plane: Plane, policy: str, folder: Path, *words: Any, **variables: str) -> None:
        self.said = Path(f"{folder}.said")
        self.words = [plane.rondo, "weights", "fetch", policy, "--to", folder, "--follow", "--json", "--dir", plane.folder, *words]
        self.variables = {**os.environ, **variables}
        self.start()

    def start(self) -> None:
        with self.said.open("a") as out, Path(f"{self.said}.log").open("a") as log:
            self.process = subprocess.Popen([str(w) for w in self.words], stdout=out, stderr=log, env=self.variables)

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait()

    def notes(self, event: str) -> list[dict[str, Any]]:
        return [note for note in map(json.loads, self.said.read_text().splitlines()) if note["event"] == event]

    def activated(self, version: int, times: int = 1) -> dict[str, Any]:
        """Wait until it has said so often that the server has the version."""

        def so() -> bool:
            assert self.process.poll() is None, f"the side-car has ended: {Path(f'{self.said}.log').read_text()[-2000:]}"
            return len([n for n in self.notes("activated") if n["version"] == version]) >= times

        until(f"version {version} is activated", so)
        return next(n for n in reversed(self.notes("activated")) if n["version"] == version)
