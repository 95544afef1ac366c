"""A trainer that dies where it is told to: python -m tests.trainer DIR RUN CHECKPOINT EVERY STEPS none|all [POINT STEP].

Its weights are 8 numbers that follow from the batches and their order: from the batch itself (none), or from what all adapters give of it.
Beside its checkpoint it keeps a journal of what it was given.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rondo
from rondo.adapters.areal import to_areal
from rondo.adapters.atropos import to_atropos
from rondo.adapters.openrlhf import to_openrlhf
from rondo.adapters.prime_rl import to_prime_rl_samples
from rondo.adapters.skyrl import to_skyrl
from rondo.adapters.slime import to_slime
from rondo.adapters.tinker import to_tinker
from rondo.adapters.trl import to_trl_samples
from rondo.adapters.verl import to_verl

Weights = npt.NDArray[np.float64]


#: By name, what an adapter makes of a batch.
ADAPTERS: dict[str, Callable[[rondo.Batch], Any]] = {
    "areal": to_areal,
    "atropos": to_atropos,
    "openrlhf": to_openrlhf,
    "prime_rl": to_prime_rl_samples,
    "skyrl": to_skyrl,
    "slime": to_slime,
    "tinker": to_tinker,
    "trl": to_trl_samples,
    "verl": to_verl,
}


#: Those that give torch tensors.
TENSORS = ("areal", "openrlhf", "skyrl", "verl")


def learn(weights: Weights, batch: rondo.Batch, adapters: str = "none") -> Weights:
    """A step that depends on every token and on all steps before it."""
    if adapters == "none":
        pull = np.asarray(np.bincount(batch.tokens.values % 8, batch.advantages.values + batch.loss_mask.values, 8), np.float64)
    else:
        pull = np.zeros(8)
        for name, adapter in ADAPTERS.items():
            if name in TENSORS and importlib.util.find_spec("torch") is None:
                continue
            given = numbers(adapter(batch))
            assert len(given) > batch.token_count, f"the adapter {name} has not given every token"
            pull += np.bincount(np.arange(len(given)) % 8, given, 8)
    return 0.5 * weights + pull + batch.step


def numbers(given: Any) -> Weights:
    """All numbers of what an adapter gives, in its order."""
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, (str, bytes, type(None))) or getattr(getattr(given, "dtype", None), "kind", "") == "O":
        return np.zeros(0)
    if isinstance(given, (list, tuple)):
        return np.concatenate([np.zeros(0), *map(numbers, given)])
    return np.nan_to_num(np.asarray(given, np.float64).ravel())


def main() -> None:
    directory, run, file, every, steps = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    adapters = sys.argv[6]
    die = (sys.argv[7], int(sys.argv[8])) if len(sys.argv) > 7 else ("", 0)

    def at(point: str, step: int) -> None:
        if die == (point, step):
            os.kill(os.getpid(), signal.SIGKILL)

    step, weights = 0, np.zeros(8)
    if file.exists():
        saved = json.loads(file.read_text())
        step, weights = saved["step"], np.array(saved["weights"])
    with rondo.Feed(run, "trainer", dir=directory, after=step, timeout=60) as feed:
        if step:
            feed.publish_weights({"w": weights}, version=step, through_step=step)
        at("resumed", step)
        for batch in feed:
            with open(file.with_suffix(".journal"), "a") as journal:
                print(batch.step, batch.ready["files"][0]["sha256"], batch.tokens.values.sum(), file=journal)
            at("given", batch.step)
            feed.consumed(batch)
            at("consumed", batch.step)
            weights = learn(weights, batch, adapters)
            if batch.step % every == 0:
                part = file.with_suffix(".part")
                part.write_text(json.dumps({"step": batch.step, "weights": weights.tolist()}))
                part.rename(file)
            at("saved", batch.step)
            feed.publish_weights({"w": weights}, version=batch.step, through_step=batch.step)
            at("published", batch.step)
            if batch.step % every == 0:
                feed.checkpointed(batch)
            at("checkpointed", batch.step)
            if batch.step == steps:
                break
    print("weights", json.dumps(weights.tolist()))


if __name__ == "__main__":
    main()
