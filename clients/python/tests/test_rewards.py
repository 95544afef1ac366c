"""Rewards that are missing, or no numbers: the rollout fails by name, and has no reward of 0."""

from __future__ import annotations

import math
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from rondo import env
from rondo.env.environment import adapted, components
from rondo.env.gym import Gym
from rondo.env.openenv import OpenEnv
from rondo.env.roles import _decided
from rondo.env.verifiers import parts

NO_REWARDS = [None, math.nan, math.inf, "1.0", b"1", 1e10]


class Server:
    """A client of OpenEnv's that is its own session: it answers with the given rewards, the last of which ends the episode."""

    def __init__(self, *rewards: Any) -> None:
        self.rewards, self.async_client = list(rewards), SimpleNamespace(_ws="socket")

    def sync(self) -> Server:
        return self

    def connect(self) -> None: ...

    def reset(self, **_: Any) -> Any:
        return SimpleNamespace(observation={}, reward=None, done=False)

    def step(self, _: Any) -> Any:
        return SimpleNamespace(observation={}, reward=self.rewards.pop(0), done=not self.rewards)


def _task() -> env.Task:
    given: dict[str, Any] = {name: {} if name == "data" else 1 if name == "seed" else "t" for name in env.Task.__dataclass_fields__}
    return env.Task(**given)


def _action(last: bool = False) -> env.Action:
    given: dict[str, Any] = dict.fromkeys(env.Action.__dataclass_fields__, "")
    given |= {"turn": 0, "content": "1", "calls": [], "last": last}
    return env.Action(**given)


def _played(*rewards: Any, last: bool = False) -> list[float]:
    episode = OpenEnv(lambda _: Server(*rewards))()
    episode.reset(_task())
    steps = [episode.step(_action(last and i == len(rewards) - 1)) for i in range(len(rewards))]
    return [components(step.components, step.reward)["reward"] for step in steps if isinstance(step, env.Step)]


def test_openenv_pays_what_its_server_says() -> None:
    assert _played(None, 0.5, 1) == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("reward", NO_REWARDS)
def test_openenv_ends_without_a_reward(reward: Any) -> None:
    with pytest.raises(ValueError, match="reward is"):
        _played(0.5, reward)


def test_openenv_is_cut_before_any_reward() -> None:
    episode = OpenEnv(lambda _: Server(None, None))()
    episode.reset(_task())
    with pytest.raises(ValueError, match="reward is None"):
        episode.step(_action(last=True))


@pytest.mark.parametrize("reward", NO_REWARDS)
def test_gym_gives_no_number(reward: Any) -> None:
    class Making:
        def reset(self, seed: int) -> tuple[Any, Any]:
            return "", {}

        def step(self, _: Any) -> tuple[Any, Any, bool, bool, Any]:
            return "", reward, True, False, {}

    episode = Gym(lambda _: Making(), act=lambda text: text)()
    episode.reset(_task())
    step = episode.step(_action())
    assert isinstance(step, env.Step)
    with pytest.raises(ValueError, match="reward is"):
        components(step.components, step.reward)


@pytest.mark.parametrize("reward", NO_REWARDS)
def test_steps_and_ends_give_no_number(reward: Any) -> None:
    with pytest.raises(ValueError, match="reward is"):
        _decided(["a", "b"], "a", None, env.End({"a": reward, "b": 1.0}))
    with pytest.raises(ValueError, match="is missing|must be"):
        components({"style": reward}, 1.0)
    with pytest.raises(ValueError, match="reward is"):
        components({}, reward)


def test_a_generator_ends_without_a_reward() -> None:
    def forgetful(task: env.Task) -> Generator[str, env.Action, Any]:
        yield "Say something."

    def paying(task: env.Task) -> Generator[Any, env.Action, Any]:
        yield "Say something."
        yield env.Step("Well.", reward=1.0)

    for function, wanted in ((forgetful, None), (paying, 0.0)):
        episode = adapted(function)()._environment
        episode.reset(_task())
        if wanted is None:
            with pytest.raises(ValueError, match="ended without a reward"):
                episode.step(_action())
            continue
        assert episode.step(_action()).reward == 1.0 and episode.step(_action()).reward == wanted


def _trace(reward: Any, **rewards: Any) -> Any:
    scored = {name: None if score == "none" else SimpleNamespace(score=score) for name, score in rewards.items()}
    return SimpleNamespace(rewards=scored, metrics={"m": 1.0, "n": None}, reward=reward)


def test_verifiers_rewards() -> None:
    assert parts(_trace(0.5, a=0.5)) == {"reward": 0.5, "a": 0.5, "m": 1.0}
    wrong = [(_trace(0.0), "no rewards"), (_trace(1.0, a=1.0, b=None), "score: b"), (_trace(0.0, a="none"), "score: a")]
    for trace, why in wrong:
        with pytest.raises(ValueError, match=why):
            parts(trace)
