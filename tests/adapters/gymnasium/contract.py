"""rondo.env.gym against gymnasium itself: the guide's environment is played, and another worker repeats it from the recorded turns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium

from rondo import env
from rondo.env.environment import Adapted, adapted
from rondo.env.gym import Gym

GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/environment-libraries.md"


def played(episode: Adapted, task: env.Task, actions: list[str]) -> list[dict[str, Any]]:
    """What an episode says to a model's answers, to its end."""
    said = [episode.reset(task)]
    for turn, text in enumerate(actions):
        said.append(episode.step(env.Action(turn, text)))
        if said[-1].get("done"):
            break
    episode.close()
    return said


def texts(said: list[dict[str, Any]]) -> list[str]:
    return [m["content"] for o in said for m in o["messages"]]


def shown() -> Any:
    """The environment of the guide."""
    [code] = [block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "import gymnasium" in block]
    given: dict[str, Any] = {}
    serve, env.serve = env.serve, lambda run, **options: given.update(options)
    try:
        exec(code, {})
    finally:
        env.serve = serve
    return given["environment"]


def the_guide_s_lake() -> None:
    task = env.Task("lake", "", {}, seed=1)
    make = adapted(shown())
    said = played(make(), task, ["down", "dwon", "down", "right", "right", "down", "right"])
    assert said[-1]["done"] and [o["reward"] for o in said] == [0, 0, 0, 0, 0, 0, 0, 1], said
    assert texts(said)[0] == "You are on field 0 of a 4×4 lake. left, down, right or up?" and texts(said)[-1].startswith(
        "You are on field 15"
    )
    assert texts(said)[2].startswith("That is no action")
    hole = played(make(), task, ["right", "down"])[-1]
    assert hole["done"] and hole["reward"] == 0 and "field 5" in texts([hole])[0]


def chance_follows_the_seed() -> None:
    make = adapted(Gym(lambda _: gymnasium.make("FrozenLake-v1", is_slippery=True)))
    episodes = [played(make(), env.Task("lake", "", {}, seed=seed), ["1", "2"] * 30) for seed in (1, 1, 2, 3, (1 << 62) + 5)]
    assert episodes[0] == episodes[1] and len({str(e) for e in episodes}) > 1
    assert make().repeats and not make().saves


def what_is_no_number_is_told() -> None:
    make = adapted(Gym(lambda _: gymnasium.make("CartPole-v1"), say=lambda seen: f"{seen[0]:.2f}"))
    said = played(make(), env.Task("pole", "", {}, seed=7), ["push", *["1"] * 500])
    assert texts(said)[1].startswith("That is no action") and said[-1]["done"] and sum(o.get("reward", 0) for o in said) == len(said) - 2


if __name__ == "__main__":
    for check in (the_guide_s_lake, chance_follows_the_seed, what_is_no_number_is_told):
        check()
        print(f"{check.__name__} ok", flush=True)
