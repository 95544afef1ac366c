"""rondo.env.openenv against OpenEnv's own server and client: episodes over its sockets, at once, repeated, and with the server killed.

A live plane samples the last ones; OpenEnv's own class takes what it has recorded.
"""

from __future__ import annotations

import multiprocessing
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.generic_client import GenericEnvClient

from rondo import env
from rondo.env.environment import Adapted, adapted
from rondo.env.openenv import OpenEnv

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/environment-libraries.md"


class Guess(Action):
    number: int


class Seen(Observation):
    text: str = ""


class Game(Environment[Guess, Seen, State]):
    """Guess the number that the seed and the task choose."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        self._number = more.get("number", (seed or 0) % 16)
        return Seen(text="Guess.")

    def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Seen:
        if action.number == self._number:
            return Seen(text="Right.", done=True, reward=1.0)
        return Seen(text="Higher." if action.number < self._number else "Lower.", reward=-0.25)

    @property
    def state(self) -> State:
        return State()


def run(port: int) -> None:
    import uvicorn

    uvicorn.run(
        create_fastapi_app(Game, Guess, Seen, max_concurrent_envs=4),
        host="127.0.0.1",
        port=port,
        log_level="error",
    )


@contextmanager
def server(port: int) -> Iterator[Any]:
    process = multiprocessing.get_context("spawn").Process(target=run, args=(port,), daemon=True)
    process.start()
    try:
        for _ in range(3000):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.is_alive(), "the server has ended"
                time.sleep(0.1)
        else:
            raise AssertionError("the server does not listen within 5 minutes")
        yield process
    finally:
        process.kill()
        process.join()


def maker(port: int, **more: Any) -> Any:
    return adapted(OpenEnv(lambda _: GenericEnvClient(base_url=f"http://127.0.0.1:{port}"), **more))


def reading(port: int, **more: Any) -> Any:
    return maker(
        port,
        say=lambda seen: seen["text"],
        act=lambda text: {"number": int(text)},
        **more,
    )


def played(episode: Adapted, task: env.Task, actions: list[str]) -> list[tuple[str, float, bool]]:
    said = [
        episode.reset(task),
        *(episode.step(env.Action(turn, text)) for turn, text in enumerate(actions)),
    ]
    episode.close()
    return [(s["messages"][0]["content"], s.get("reward", 0.0), s.get("done", False)) for s in said]


def episodes_are_played(port: int) -> None:
    game = [
        ("Guess.", 0.0, False),
        ("Higher.", -0.25, False),
        ("That is no action", 0.0, False),
        ("Right.", 1.0, True),
    ]
    said = played(reading(port)(), env.Task("a", "", {}, seed=7 + (1 << 40)), ["3", "seven", "7"])
    assert [(text[:17], *rest) for text, *rest in said] == game, said
    assert (
        played(
            reading(port)(),
            env.Task("a", "", {}, seed=7 + (1 << 40)),
            ["3", "seven", "7"],
        )
        == said
    )
    assert played(reading(port)(), env.Task("a", "", {"reset": {"number": 2}}, seed=7), ["2"])[-1] == ("Right.", 1.0, True)
    plain = played(maker(port)(), env.Task("a", "", {}, seed=7), ["no JSON", '{"number": 7}'])
    assert (
        plain[0][0] == '{"text": "Guess."}'
        and plain[1][0].startswith("That is no action")
        and plain[2] == ('{"text": "Right."}', 1.0, True)
    ), plain


def episodes_at_once_have_sessions_of_their_own(port: int) -> None:
    make = reading(port)
    several = [make() for _ in range(3)]
    for i, episode in enumerate(several):
        episode.reset(env.Task("a", "", {}, seed=i))
    answers = [episode.step(env.Action(0, "1"))["messages"][0]["content"] for episode in several]
    assert answers == ["Lower.", "Right.", "Higher."], answers
    for episode in several:
        episode.close()
    assert make().repeats and not reading(port, restart="fail")().repeats


def what_the_server_refuses_is_a_failure(port: int) -> None:
    episode = maker(port)()
    episode.reset(env.Task("a", "", {}, seed=1))
    try:
        episode.step(env.Action(0, '{"number": "one"}'))
    except Exception as error:
        if "VALIDATION_ERROR" not in str(error):
            raise
    else:
        raise AssertionError("an action of another kind was answered")
    episode.close()


def a_killed_server_fails_the_episode_and_not_the_next(port: int, process: Any) -> None:
    episode = reading(port)()
    episode.reset(env.Task("a", "", {}, seed=1))
    process.kill()
    process.join()
    try:
        answer = episode.step(env.Action(0, "1"))
    except ValueError:
        raise  # it would be told to the model
    except Exception:
        pass
    else:
        raise AssertionError(f"a server that is dead answered {answer}")
    episode.close()
    with server(port):
        assert played(reading(port)(), env.Task("a", "", {}, seed=1), ["1"])[-1] == (
            "Right.",
            1.0,
            True,
        )


def shown() -> list[str]:
    """The guide's lines: an environment, and a trace of its rollouts."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [block for block in blocks if "rondo.env.openenv" in block]


def the_guide_s_lines_run(port: int) -> None:
    code, _ = shown()
    given: dict[str, Any] = {}
    serve, env.serve = env.serve, lambda run, **options: given.update(options)  # type: ignore[assignment]
    try:
        exec(code.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{port}"), {})
    finally:
        env.serve = serve
    assert played(adapted(given["environment"])(), env.Task("a", "", {}, seed=4), ["4"])[-1] == ("Right.", 1.0, True)


def halved(messages: Sequence[Mapping[str, Any]]) -> str:
    """A model that halves what is left of the numbers up to 15."""
    low, high = 0, 15
    for guess, answer in zip(messages[1::2], messages[2::2], strict=True):
        if answer["content"] == "Higher.":
            low = int(guess["content"]) + 1
        else:
            high = int(guess["content"]) - 1
    return str((low + high) // 2)


def a_killed_server_fails_the_rollout_and_its_task_is_played_again(port: int) -> None:
    """The rollout is the machine's failure and no reward of 0; the next one of the task has its reward, and is OpenEnv's training trace."""
    from mended import binary

    import rondo
    from tests.conftest import Plane
    from tests.model import serving
    from tests.test_env import outcomes, serve, task

    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        running, killed = [servers.enter_context(server(port))], []

        def says(messages: Sequence[Mapping[str, Any]]) -> str:
            if len(messages) == 3 and not killed:  # in the middle of the first episode
                running[0].kill()
                running[0].join()
                killed.append(running[0].exitcode)
                running.append(servers.enter_context(server(port)))
            return halved(messages)

        plane = Plane(binary(Path(name)), Path(name, "plane"))
        plane.start()
        try:
            with serving(says) as url, rondo.Client(plane.dir, wait=60) as client:
                given: dict[str, Any] = {"external": False, "feeds": [], "staleness": {"max": 0}, "system_prompt": "", "group_size": 1}
                given |= {"epochs": 2, "in_flight": 1, "endpoint": url, "environment": {"name": "game"}}
                run = plane.open_run(client, tasks=[task("eleven", reset={"number": 11})], **given)
                play = OpenEnv(
                    lambda _: GenericEnvClient(base_url=f"http://127.0.0.1:{port}"),
                    say=lambda seen: str(seen["text"]),
                    act=lambda text: {"number": int(text)},
                )
                serve(plane, run, environment=play)
                [failed], [scored] = outcomes(client, run, "failed"), outcomes(client, run, "scored")
                assert "lost in the middle of the episode" in failed["message"], failed
                assert killed == [-9] and failed["stage"] == "environment" and "reward" not in failed, failed
                assert scored["rollout"] != failed["rollout"] and scored["reward"] == 1.0 - 0.25, scored
                lines: dict[str, Any] = {}
                code = shown()[1].replace("/srv/rondo", str(plane.dir))
                exec(code.replace('"game"', repr(run)).replace('"g000001-0"', repr(scored["rollout"])), lines)
                trace = lines["trace"]
                sampled = [turn for turn in outcomes(client, run, "turn_sampled.*") if turn["rollout"] == scored["rollout"]]
            plane.command("audit", run)
        finally:
            plane.stop()
        assert len(trace.turns) == len(sampled) == 2, trace
        for turn, fact in zip(trace.turns, sampled, strict=True):
            said = turn.response["choices"][0]
            assert (said["message"]["content"], said["finish_reason"]) == (fact["content"], fact["finish_reason"])
            assert len(turn.request["messages"]) == 1 + 2 * fact["turn"] and turn.metadata["turn"] == fact["turn"]
            assert bytes(turn.completion_token_ids).decode().startswith(fact["content"])
            assert turn.loss_mask == [0] * len(turn.prompt_token_ids) + [1] * len(turn.completion_token_ids)
            assert len(turn.per_token_logps) == len(turn.completion_token_ids) and max(turn.per_token_logps) < 0
        first, second = trace.turns
        whole = first.prompt_token_ids + first.completion_token_ids
        assert second.prompt_token_ids[: len(whole)] == whole and b"Higher." in bytes(second.prompt_token_ids[len(whole) :])
        assert type(trace).model_validate_json(trace.model_dump_json()) == trace


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = free.getsockname()[1]
    with server(at) as served:
        for check in (
            episodes_are_played,
            episodes_at_once_have_sessions_of_their_own,
            what_the_server_refuses_is_a_failure,
            the_guide_s_lines_run,
        ):
            check(at)
            print(f"{check.__name__} ok", flush=True)
        a_killed_server_fails_the_episode_and_not_the_next(at, served)
        print("a_killed_server_fails_the_episode_and_not_the_next ok", flush=True)
    a_killed_server_fails_the_rollout_and_its_task_is_played_again(at)
    print("a_killed_server_fails_the_rollout_and_its_task_is_played_again ok", flush=True)
