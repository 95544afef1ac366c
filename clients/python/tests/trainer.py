"""A trainer that dies where it is told to: python -m tests.trainer DIR RUN CHECKPOINT EVERY STEPS [POINT STEP].

Its weights are 8 numbers that follow from the batches and their order. Beside its checkpoint it keeps a journal of what it was given.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

import rondo

Weights = npt.NDArray[np.float64]


def learn(weights: Weights, batch: rondo.Batch) -> Weights:
    """A step that depends on every token and on all steps before it."""
    pull = np.bincount(batch.tokens.values % 8, batch.advantages.values + batch.loss_mask.values, 8)
    return 0.5 * weights + pull + batch.step


def main() -> None:
    directory, run, file, every, steps = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    die = (sys.argv[6], int(sys.argv[7])) if len(sys.argv) > 6 else ("", 0)

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
            weights = learn(weights, batch)
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
