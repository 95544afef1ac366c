"""The trajectories that every row of the table carries: the same seed gives the same ones."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

#: Rollouts of a group, and of a training batch.
GROUP, BATCH = 8, 16
VOCABULARY = 151_936


@dataclass
class Trajectory:
    """One rollout: a prompt of a quarter of its tokens, and what was sampled behind it."""

    #: Counts from 0. It stands in the first token, too: not every rival carries a name.
    number: int
    #: Token ids, T of them.
    ids: list[int]
    #: Natural log-probability of each token, T float32 values, 0 where it was not sampled.
    logprobs: list[float]
    #: T booleans, true where the model sampled the token.
    mask: list[bool]
    reward: float

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.ids) // 4


def trajectory(number: int, tokens: int) -> Trajectory:
    """A trajectory of T tokens. Log-probabilities use all of their 24 bits."""
    draw = random.Random(number)
    prompt = tokens // 4
    sampled = array("f", [-draw.expovariate(3) for _ in range(tokens - prompt)]).tolist()
    ids = [number, *draw.choices(range(VOCABULARY), k=tokens - 1)]
    return Trajectory(number, ids, [0.0] * prompt + sampled, [False] * prompt + [True] * (tokens - prompt), float(number % 2))


def groups(count: int, tokens: int) -> list[list[Trajectory]]:
    """The groups of so many trajectories."""
    return [[trajectory(first + i, tokens) for i in range(GROUP)] for first in range(0, count, GROUP)]


def figures(ids: Sequence[int], logprobs: Sequence[float], mask: Sequence[bool]) -> list[float]:
    """The number of a trajectory, and what shows that its content is whole."""
    return [int(ids[0]), int(sum(ids)), round(float(sum(logprobs)), 1), int(sum(mask))]
