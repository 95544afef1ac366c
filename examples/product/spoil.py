"""A trainer that has gone wrong: python3 spoil.py RUN publishes noise as the next version of the run's policy."""

from __future__ import annotations

import os
import sys

import numpy as np

import rondo

PLANE = os.environ.get("PLANE", "/srv/rondo")


def main(run: str) -> None:
    """Publish tensors of the last version's names and shapes, filled with noise."""
    with rondo.Client(PLANE, source="spoil") as client:
        policy = client.config(run)["policy"]
        last = client.published(policy)
        assert last is not None
        noise = np.random.default_rng(1)
        weights = {name: noise.normal(0, 100, tensor.shape).astype(tensor.dtype) for name, tensor in last.load().items()}
        client.publish_weights(policy, weights, run=run, through_step=last.version, version=last.version + 1)
        print(f"version {last.version + 1} is noise", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
