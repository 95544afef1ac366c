"""Episodes of several roles: a rollout for each, one environment, and one history, whatever is killed."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rondo
from rondo import env
from rondo.connection import end
from rondo.env.episode import Stage
from rondo.env.lease import EPISODES, take
from rondo.env.roles import play_roles

from .conftest import Plane, until
from .environments import LINES, TicTacToe, any_free
from .model import serving
from .test_env import evaluate, outcomes, process, replaced, serve, shown, task

GAME = {"environment": {"name": "game", "roles": ["x", "o"]}, "group_size": 4}


@pytest.fixture(scope="module")
def playing() -> Iterator[str]:
    with serving(any_free) as url:
        yield url


def games(client: rondo.Client, run: str) -> list[list[dict[str, Any]]]:
    """The rollouts of each game, x first, as their started facts."""
    started = sorted(outcomes(client, run, "started"), key=lambda s: (s["group"], s["member"]))
    assert [s["role"] for s in started] == ["x", "o"] * (len(started) // 2)
    return [started[i : i + 2] for i in range(0, len(started), 2)]


def turns(client: rondo.Client, run: str) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for turn in outcomes(client, run, "turn_sampled.*"):
        said.setdefault(turn["rollout"], []).append(turn["content"])
    return said


def check_games(client: rondo.Client, run: str) -> None:
    """Each game was played to its end by the rules, in turns, and its rewards are those of the board."""
    said, scored = turns(client, run), {s["rollout"]: s for s in outcomes(client, run, "scored")}
    for x, o in games(client, run):
        moves = [said.get(x["rollout"], []), said.get(o["rollout"], [])]
        assert len(moves[0]) - len(moves[1]) in (0, 1)
        board = ["."] * 9
        for i in range(len(moves[0]) + len(moves[1])):
            board[int(moves[i % 2][i // 2])] = "xo"[i % 2]
        won = [r for r in "xo" if any(all(board[i] == r for i in line) for line in LINES)]
        want = (0.0, 0.0) if not won else (1.0, -1.0) if won == ["x"] else (-1.0, 1.0)
        assert (scored[x["rollout"]]["reward"], scored[o["rollout"]]["reward"]) == want, board
        assert len(board) - board.count(".") == sum(map(len, moves)) and (won or "." not in board)


def test_two_players_are_two_rollouts_of_one_group(plane: Plane, client: rondo.Client, playing: str) -> None:
    run = evaluate(plane, client, playing, [task("a"), task("b")], **GAME)
    serve(plane, run, environment=TicTacToe)
    check_games(client, run)
    for group in outcomes(client, run, "completed", "group"):
        for role in "xo":
            members = [m for m in group["members"] if m["role"] == role]
            mean = sum(m["reward"] for m in members) / len(members)
            assert len(members) == 2 and [m["advantage"] for m in members] == pytest.approx([m["reward"] - mean for m in members])
    plane.command("audit", run)
    plane.command("replay", run, "--verify")


def test_a_batch_shows_roles(plane: Plane, client: rondo.Client, playing: str) -> None:
    changes = {"feeds": [{"name": "trainer", "groups_per_batch": 1}], "epochs": 0, "steps": 1, "filters": {"whole_episodes": True}}
    run = evaluate(plane, client, playing, [task("a")], **GAME, **changes)
    batch = _train(plane, client, run)
    roles = {s["rollout"]: s["role"] for s in outcomes(client, run, "started")}
    ids = batch.column("rollout_id").tolist()
    assert len(ids) == 4 and batch.roles == [roles[i] for i in ids] and sorted(batch.roles) == ["o", "o", "x", "x"]
    plane.command("audit", run)
    plane.command("replay", run, "--verify")


def _train(plane: Plane, client: rondo.Client, run: str) -> rondo.Batch:
    async def both() -> None:
        async with rondo.AsyncClient(plane.dir, wait=60) as own:
            worker = asyncio.create_task(env.work(own, run, environment=TicTacToe))
            while not outcomes(client, run, "ready", "batch"):
                assert not worker.done()
                await asyncio.sleep(0.05)
            await end(worker)

    asyncio.run(both())
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        batch = next(feed)
    plane.command("run", "close", run)
    return batch


def test_a_killed_worker_is_followed_by_another(plane: Plane, client: rondo.Client, playing: str, tmp_path: Path) -> None:
    """The plane waits for a dead worker's signs of life, of all four runs at once."""

    def follow(name: str, die: int) -> None:
        run = evaluate(plane, client, playing, [task("a")], **{**GAME, "group_size": 2})
        replaced(plane, run, name, tmp_path / f"{name}{die}", die)
        check_games(client, run)
        plane.command("replay", run, "--verify")

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(follow, name, die) for name in ("game", "generated") for die in (0, 2)]:
            done.result()


def test_a_killed_plane_is_waited_for(own_plane: Plane, playing: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with rondo.Client(own_plane.dir, wait=60) as client:
        run = evaluate(own_plane, client, playing, [task(str(n)) for n in range(4)], **GAME)
        with process(own_plane, run, "game", journal) as worker:
            for steps in (3, 9):
                until(lambda steps=steps: journal.exists() and len(journal.read_text().splitlines()) >= steps, 60, own_plane.said)
                own_plane.kill()
                own_plane.start()
            assert worker.wait(240) == 0, worker.stderr and worker.stderr.read()
        check_games(client, run)
    own_plane.command("audit", run)


class Coin(TicTacToe):
    """Whoever comes may end it otherwise than another one: what is settled first counts."""

    made = 0

    def __init__(self) -> None:
        Coin.made += 1
        self.number = Coin.made

    def step(self, action: env.Action) -> env.Next | env.End:
        then = super().step(action)
        if self.board.count(".") < 7 and self.number % 2:
            return env.End({"x": float(self.number), "o": float(-self.number)})
        return then


def test_several_workers_of_one_episode_make_one_history(plane: Plane, client: rondo.Client, playing: str) -> None:
    run = evaluate(plane, client, playing, [task("a"), task("b")], **GAME)

    async def all_at_once() -> None:
        async with rondo.AsyncClient(plane.dir, wait=60) as own:
            while await own.log.last(run, f"rondo.v1.{run}.run.{run}.closed") is None:
                lease = await take(own.connection, run, EPISODES)
                if lease is None:
                    continue
                async with lease:
                    fact = await own.log.next(run, lease.subject, lease.sequence)
                    assert fact is not None
                    stages = [Stage(own._opened_plane, run, {"a": task("a"), "b": task("b")}, name, 60) for name in "abc"]
                    last = f"{fact.data['group']}-{fact.data['member'] + 1}"
                    while fact.data["role"] == "x":  # whoever is overtaken may take the episode up again
                        await asyncio.gather(*(play_roles(stage, ["x", "o"], fact, Coin) for stage in stages))
                        if await own.log.last(run, f"rondo.v1.{run}.rollout.{last}.scored") is not None:
                            break
                    await lease.done()

    asyncio.run(asyncio.wait_for(all_at_once(), 120))
    scored = {s["rollout"]: s["reward"] for s in outcomes(client, run, "scored")}
    for x, o in games(client, run):
        assert scored[x["rollout"]] == -scored[o["rollout"]]
    plane.command("audit", run)


class Broken(TicTacToe):
    def step(self, action: env.Action) -> env.Next | env.End:
        if self.board.count(".") == 7:
            raise RuntimeError("lost the board")
        return super().step(action)


def test_the_roles_of_an_episode_fail_together(plane: Plane, client: rondo.Client, playing: str) -> None:
    run = evaluate(plane, client, playing, [task("a")], **GAME)
    serve(plane, run, environment=Broken)
    failed = outcomes(client, run, "failed")
    assert len(failed) == 4 and all("lost the board" in f["message"] and f["stage"] == "environment" for f in failed), failed
    plane.command("audit", run)


def test_a_role_that_reaches_a_limit_ends_the_others(plane: Plane, client: rondo.Client, playing: str) -> None:
    limits = {"turns": 1, "tokens": 131072, "timeout": "10m", "tries": 5}
    run = evaluate(plane, client, playing, [task("a")], **GAME, limits=limits)
    serve(plane, run, environment=TicTacToe)
    assert [f["stop_reason"] for f in outcomes(client, run, "finished")] == ["max_turns"] * 2
    assert all("the role x of the episode has reached a limit" in f["message"] for f in outcomes(client, run, "failed"))
    assert len(outcomes(client, run, "failed")) == 2
    plane.command("audit", run)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (env.Next("z", "x"), "the roles are ['x', 'o'], not 'z'"),
        (env.End({"z": 1}), "not ['z']"),
        (env.End({"x": float("nan")}), "the reward is nan"),
        ("text", "answers with Next or End, not with str"),
    ],
)
def test_what_no_environment_with_roles_may_answer(plane: Plane, client: rondo.Client, playing: str, answer: Any, why: str) -> None:
    wrong = type("Wrong", (TicTacToe,), {"step": lambda self, action: answer})
    run = evaluate(plane, client, playing, [task("a")], **{**GAME, "group_size": 2})
    serve(plane, run, environment=wrong)
    failed = outcomes(client, run, "failed")
    assert len(failed) == 2 and all(why in f["message"] for f in failed), failed


def test_what_is_settled_is_settled_once(plane: Plane, client: rondo.Client, playing: str) -> None:
    run = evaluate(plane, client, playing, [task("a")], **{**GAME, "group_size": 2})
    until(lambda: len(outcomes(client, run, "started")) == 2, 60)
    [[x, o]] = games(client, run)

    def state(rollout: dict[str, Any], **said: Any) -> None:
        client.state(run, "rollout.observed", rollout["rollout"], said)

    def refused(why: str, rollout: dict[str, Any], **said: Any) -> None:
        with pytest.raises(rondo.IntakeError, match=why):
            state(rollout, **said)

    say = [{"role": "user", "content": "Say a free field. ........."}]
    refused("its opening is held", o, turn=-1, messages=say)
    refused("nothing is settled", x, turn=-1, messages=say, held=True)
    refused("the roles are", x, turn=-1, next="z")
    refused("says nothing else here", x, turn=-1, next="o", messages=say)
    state(x, turn=-1, next="o")
    refused("already recorded", x, turn=-1, messages=say)
    state(o, turn=-1, messages=say, held=True)
    until(lambda: turns(client, run).get(o["rollout"]), 60)
    state(o, turn=0, next="x")
    state(x, turn=-1, messages=say, held=True)
    until(lambda: turns(client, run).get(x["rollout"]), 60)
    state(x, turn=0, done=True, reward=1)
    refused("already recorded", o, turn=0, reward=5, done=True)
    state(o, turn=0, done=True, reward=-1, held=True)
    until(lambda: len(outcomes(client, run, "scored")) == 2, 60)
    plane.command("audit", run)


def test_run_files_with_roles_that_cannot_be(plane: Plane, client: rondo.Client, playing: str) -> None:
    for why, changes in {
        "must be a multiple of 2": {**GAME, "group_size": 3},
        "must be 2 to 16": {"environment": {"name": "game", "roles": ["x"]}},
        "no other role has": {"environment": {"name": "game", "roles": ["x", "x"]}},
        "has no environment.roles": {"environment": {"name": "game"}, "filters": {"whole_episodes": True}},
    }.items():
        with pytest.raises(rondo.IntakeError, match=why):
            evaluate(plane, client, playing, [task("a")], **changes)  # type: ignore[arg-type]


def test_a_partner_that_is_not_trained_is_somebody_elses_model(plane: Plane, client: rondo.Client, playing: str, tmp_path: Path) -> None:
    """A simulated user: its words are the environment's, it remembers the conversation, and another worker goes on with it."""
    heard: list[int] = []

    def user(messages: Any) -> str:
        heard.append(len(messages))
        return "." * 8 + f" {len(messages)} ........."

    with serving(user) as url:

        class Talk:
            def __init__(self) -> None:
                self.user = env.Partner(url, "user", "You want a field.", temperature=0.5)

            def reset(self, task: env.Task) -> str:
                return self.user.answer("What do you want?")

            def step(self, action: env.Action) -> env.Answer:
                if len(self.user.messages) >= 7:
                    return env.Step(reward=1.0, done=True)
                return self.user.answer(action.content)

            def save(self) -> Any:
                return self.user.messages

            def load(self, task: env.Task, state: Any) -> None:
                self.user.messages = state

        run = evaluate(plane, client, playing, [task("a")], environment={"name": "talk"}, group_size=1)
        serve(plane, run, environment=Talk)
    assert heard == [2, 4, 6] and [s["reward"] for s in outcomes(client, run, "scored")] == [1.0]
    plane.command("audit", run)


def test_a_partner_that_does_not_answer_is_the_machines_failure(plane: Plane, client: rondo.Client, playing: str) -> None:
    class Talk:
        def reset(self, task: env.Task) -> str:
            return env.Partner("http://user:planted@127.0.0.1:9/v1", "user", key="planted", patience=0.5).answer("Hello")

        def step(self, action: env.Action) -> str:
            return ""

    run = evaluate(plane, client, playing, [task("a")], environment={"name": "talk"}, group_size=1)
    serve(plane, run, environment=Talk)
    [failed] = outcomes(client, run, "failed")
    assert "PartnerError: the partner user does not answer" in failed["message"] and "planted" not in str(failed)


def test_the_guide_plays_a_game(plane: Plane, client: rondo.Client) -> None:
    code = shown("python", "class Nim:")
    assert (
        "environment: {name: nim, roles: [first, second]}" in shown("yaml", "whole_episodes")
        and len(code.replace("\n\n", "\n").splitlines()) <= 15
    )
    with serving(lambda messages: "2") as url:
        run = evaluate(plane, client, url, [task("a", stones=5)], environment={"name": "nim", "roles": ["first", "second"]}, group_size=2)
        _exec(plane, run, code)
    assert [s["reward"] for s in outcomes(client, run, "scored")] in ([1.0, -1.0], [-1.0, 1.0])
    assert {s["rollout"]: s["reward"] for s in outcomes(client, run, "scored")} == {"g000001-0": 1.0, "g000001-1": -1.0}


def test_the_guide_serves_a_customer(plane: Plane, client: rondo.Client) -> None:
    code = shown("python", "class Customer:")
    assert len(code.replace("\n\n", "\n").splitlines()) <= 15
    with (
        serving(lambda messages: "DONE" if len(messages) > 4 else "My lamp is broken.") as user,
        serving(lambda messages: "I am sorry.") as url,
    ):
        run = evaluate(plane, client, url, [task("a")], environment={"name": "shop"}, group_size=1)
        _exec(plane, run, code.replace("http://127.0.0.1:9000/v1", user))
    assert [s["reward"] for s in outcomes(client, run, "scored")] == [1.0]


def _exec(plane: Plane, run: str, code: str) -> None:
    code = re.sub(r'env\.serve\("\w+"', f"env.serve({run!r}, dir={str(plane.dir)!r}", code)
    worker = threading.Thread(target=lambda: exec(code, {}), daemon=True)
    worker.start()
    worker.join(120)
    assert not worker.is_alive()
