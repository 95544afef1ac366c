"""Tinker, Atropos and prime-rl: their own types take what the adapters give, and what comes out trains like the reference.

These three have no loss of their own to import without a GPU or a server of theirs: each formula below is written from the trainer's
documentation and fed only with what the trainer's types hold.
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import reference
from reference import Term, agree, batch, loss, rows, terms

from rondo.adapters.atropos import to_atropos
from rondo.adapters.prime_rl import to_prime_rl, to_prime_rl_samples
from rondo.adapters.tinker import to_tinker
from tests.pages import words


def tinker() -> None:
    """`Datum` and `ForwardBackwardInput` take it; the service's ppo loss sums over tokens."""
    from tinker.types import Datum, ForwardBackwardInput, ModelInput

    made = [Datum(ModelInput.from_ints(d["model_input"]), d["loss_fn_inputs"]) for d in to_tinker(batch(rows()))]
    told = ForwardBackwardInput(made, "ppo")

    def held() -> Iterator[Term]:
        for datum in told.data:
            inputs = {k: v.to_numpy() for k, v in datum.loss_fn_inputs.items()}
            assert set(inputs) == {"target_tokens", "logprobs", "advantages"}, "Tinker's ppo refuses other inputs"
            assert all(len(v) == datum.model_input.length for v in inputs.values())
            ids = datum.model_input.to_ints()
            yield from zip(ids, inputs["target_tokens"], inputs["logprobs"], inputs["advantages"], [1.0] * len(ids), strict=True)

    agree("tinker", *loss((t for t in held() if t[3] != 0), mean=False), loss(terms(rows()), mean=False))


def atropos() -> None:
    """Its server takes the groups and hands them to a trainer with the temperature, by which the trainer divides the logits."""
    from atroposlib.api.server import app

    samples = rows(temperature=0.5)[1:]  # the server wants groups of one size
    trainer = {"wandb_group": "g", "wandb_project": "p", "batch_size": len(samples), "max_token_len": 64, "checkpoint_dir": "/tmp"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient
    with TestClient(app) as server:
        server.post("/register", json={**trainer, "save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 1}).raise_for_status()
        for group in to_atropos(batch(samples)):
            server.post("/scored_data", json=group).raise_for_status()
        given = server.get("/batch").raise_for_status().json()["batch"]
    assert given and sum(len(g["tokens"]) for g in given) == len(samples), given

    def held() -> Iterator[Term]:
        for group in given:
            for i, (ids, labels) in enumerate(zip(group["tokens"], group["masks"], strict=True)):
                assert group["overrides"][i] == group["generation_params"]
                for t in range(1, len(ids)):
                    if labels[t] != -100:
                        temperature = group["overrides"][i]["temperature"]
                        yield ids[t - 1], labels[t], group["inference_logprobs"][i][t], group["advantages"][i][t], temperature

    agree("atropos", *loss(held()), loss(terms(samples)))


class MicroBatch(msgspec.Struct, array_like=True, omit_defaults=True):
    """The fields of prime-rl 0.8's struct up to the optional ones, in their order on the wire. prime-rl is not on PyPI."""

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    sequence_lengths: list[int]
    temperatures: list[float]
    env_names: list[str]
    seq_lens: list[int]


def prime_rl(struct: Any = MicroBatch, sample: Any = None) -> None:
    """Micro-batches go over the wire and come back as they were; the trainer shifts by itself and divides by the temperature."""
    samples = rows(temperature=0.5)
    for row, number in zip(samples, [0, 1, 0, 1, 1], strict=True):
        row["micro_batch"] = number
    packed = reference.handmade.batch(samples, micro_batches="3")
    wire = msgspec.msgpack.encode([struct(**fields) for fields in to_prime_rl(packed)])
    # docs/guide/from-prime-rl.md writes them without the structs.
    assert wire == msgspec.msgpack.encode([list(fields.values()) for fields in to_prime_rl(packed)])
    received = msgspec.msgpack.decode(wire, type=list[struct])
    assert len(received) == 3

    def held() -> Iterator[Term]:
        for part in received:
            for t in range(1, len(part.input_ids)):
                if part.loss_mask[t]:
                    assert part.position_ids[t] > 0
                    old, advantage = part.inference_logprobs[t], part.advantages[t]
                    yield part.input_ids[t - 1], part.input_ids[t], old, advantage, part.temperatures[t]

    agree("prime_rl", *loss(held(), clip=False), loss(terms(samples), clip=False))
    if sample is not None:
        told = [sample(**fields) for fields in to_prime_rl_samples(packed)]
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=list[sample]) == told
        np.testing.assert_array_equal(told[0].token_ids, samples[0]["tokens"])


if __name__ == "__main__":
    tinker()
    atropos()
    prime_rl()
    if checkout := os.environ.get("RONDO_PRIME_RL"):  # it is not on PyPI: where GitHub is reached, its own structs are used
        (file,) = Path(checkout).glob("src/prime_rl/transport*/**/types.py")  # it moved after 0.8.0
        types = runpy.run_path(str(file))
        prime_rl(types["MicroBatch"], types["TrainingSample"])
        settings = [ast.parse(path.read_text()) for path in Path(checkout).glob("packages/prime-rl-configs/src/prime_rl/configs/*.py")]
        fields = [node.target for tree in settings for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
        known = {field.id for field in fields if isinstance(field, ast.Name)}
        named = {part for word in words("from-prime-rl") for part in word.split(".")}
        assert named <= known, named - known  # docs/guide/from-prime-rl.md
