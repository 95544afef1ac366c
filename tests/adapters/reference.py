"""A batch, a model of one table, and the policy loss over it, computed plainly: what every trainer must come to.

The model knows only the token before: the logits of the token after token p are row p of the table. So its loss has a gradient that can be
written down, and every trainer can be given the same model whatever its attention, packing or padding is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import rondo
from tests import handmade

#: Token ids are below it.
VOCABULARY = 512

#: How far a ratio may go before it is clipped.
LOW, HIGH = 0.2, 0.2


def table() -> np.ndarray:
    """Logits of the next token by the one before: float64 [V, V]."""
    return np.random.default_rng(7).normal(0, 0.5, (VOCABULARY, VOCABULARY))


def logprobs(logits: np.ndarray, tokens: list[int], temperature: float = 1) -> np.ndarray:
    """Log-probability of each token but the first."""
    scaled = logits[tokens[:-1]] / temperature
    return scaled[np.arange(len(tokens) - 1), tokens[1:]] - np.log(np.exp(scaled).sum(-1))


def rows(temperature: float = 1, split: bool = True) -> list[dict[str, Any]]:
    """Five samples: turns with a tool's answer between them, lengths that differ, advantages of both signs, a rollout of two samples.

    The sampler's log-probabilities lie around the model's, so that some ratios are clipped and some are not.
    """
    noise, logits = np.random.default_rng(11), table()
    made = [
        handmade.sample("g000001", 0, "..00.11", 100),
        handmade.sample("g000001", 1, "..0", 200, advantage=-0.5, reward=0.0, truncated=True, stop_reason="length"),
        handmade.sample("g000001", 2, "...0000..111", 240, advantage=-0.75, reward=0.25),
        handmade.sample("g000002", 0, ".00", 300, advantage=1.0),
        handmade.sample("g000002", 0 if split else 1, "....111", 400, advantage=1.0),
    ]
    if split:
        for number, row in enumerate(made[3:]):
            row.update(samples_in_rollout=2, sample_index=number, rollout_sampled=5)
    for row in made:
        told = np.concatenate([[0], logprobs(logits, row["tokens"], temperature)])
        told += noise.uniform(-0.5, 0.5, len(told))
        row["sampler_logprobs"] = np.where(row["loss_mask"], told, 0).astype(np.float32).tolist()
        row["temperature"] = temperature
    return made


def batch(samples: list[dict[str, Any]]) -> rondo.Batch:
    """The samples as a batch."""
    return handmade.batch(samples, batch_sampled_tokens=str(sum(sum(r["loss_mask"]) for r in samples)))


#: The token before, the token, its log-probability when it was sampled, its advantage, the temperature.
Term = tuple[int, int, float, float, float]


def terms(samples: list[dict[str, Any]]) -> Iterator[Term]:
    """The sampled tokens of the samples."""
    for row in samples:
        for t in range(1, len(row["tokens"])):
            if row["loss_mask"][t]:
                yield row["tokens"][t - 1], row["tokens"][t], row["sampler_logprobs"][t], row["advantages"][t], row["temperature"]


def loss(of: Iterable[Term], clip: bool = True, mean: bool = True) -> tuple[float, np.ndarray]:
    """The policy loss, -min(ratio A, clipped ratio A) over the mean (or sum) of the terms, and its gradient for the table."""
    logits = table()
    total, gradient, count = 0.0, np.zeros_like(logits), 0
    for before, token, old, advantage, temperature in of:
        scaled = np.exp(logits[before] / temperature)
        ratio = scaled[token] / scaled.sum() / np.exp(old)
        free, bounded = ratio * advantage, np.clip(ratio, 1 - LOW, 1 + HIGH) * advantage
        total -= min(free, bounded) if clip else free
        count += 1
        if clip and bounded < free:
            continue  # clipped: nothing flows back
        direction = -scaled / scaled.sum()
        direction[token] += 1
        gradient[before] -= free * direction / temperature
    return (total / count, gradient / count) if mean else (total, gradient)


def agree(what: str, found: float, gradient: Any, wanted: tuple[float, np.ndarray]) -> None:
    """Compare with the reference to six digits, and say so."""
    assert np.abs(wanted[1]).max() > 0.01, "the reference has no gradient: it would agree with everything"
    np.testing.assert_allclose(found, wanted[0], rtol=1e-5, atol=1e-7, err_msg=f"{what}: loss")
    np.testing.assert_allclose(np.asarray(gradient), wanted[1], rtol=1e-4, atol=1e-6, err_msg=f"{what}: gradient")
    print(f"{what}: loss {found:.6f} and gradient agree")
