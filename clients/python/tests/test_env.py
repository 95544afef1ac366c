"""Environments and reward functions of users: the plane samples, keeps the books and ends what hangs; the environment answers."""

from __future__ import annotations

import asyncio
import io
import math
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rondo
from rondo import env
from rondo.connection import end
from rondo.env.environment import adapted
from rondo.env.episode import Stage, play
from rondo.env.lease import EPISODES, RATINGS, take
from rondo.objects import put_blob
from rondo.workspace import workspace

from .conftest import ROOT, Plane, ending, until
from .environments import Guess, bisect, countdown
from .model import serving


@pytest.fixture(scope="module")
def bisecting() -> Iterator[str]:
    with serving(bisect) as url:
        yield url


@pytest.fixture(scope="module")
def adding() -> Iterator[str]:
    with serving(lambda messages: "4" if "2 + 2" in messages[-1]["content"] else "I do not know") as url:
        yield url


def task(name: str, instruction: str = "", **data: Any) -> dict[str, Any]:
    return {"name": name, "digest": f"sha256:{name}", "instruction": instruction, "workdir": "/", "verifier_timeout": "0s", "data": data}


def evaluate(plane: Plane, client: rondo.Client, url: str, tasks: list[dict[str, Any]], **changes: Any) -> str:
    """A run that tries each task in one group of two, and closes by itself."""
    given: dict[str, Any] = {
        "external": False,
        "feeds": [],
        "epochs": 1,
        "endpoint": url,
        "tasks": tasks,
        "staleness": {"max": 0},
        "system_prompt": "",
        **changes,
    }
    return plane.open_run(client, **given)


def outcomes(client: rondo.Client, run: str, type: str, kind: str = "rollout") -> list[dict[str, Any]]:
    """The facts of a type, by rollout or by another kind of entity."""

    async def read() -> list[dict[str, Any]]:
        await client.asynchronous.open()
        found, sequence = [], 1
        while (fact := await client.asynchronous.log.next(run, f"rondo.v1.{run}.{kind}.*.{type}", sequence)) is not None:
            found.append({kind: fact.entity, **fact.data})
            sequence = fact.sequence + 1
        return found

    return client.loop.run(read())


def serve(plane: Plane, run: str, **options: Any) -> None:
    """Serve until the run is closed; it must not take for ever."""
    problems: list[BaseException] = []

    def work() -> None:
        try:
            env.serve(run, dir=plane.dir, **options)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(120)
    assert not problems, problems
    assert not thread.is_alive(), plane.said()


def test_a_reward_function_rates_answers(plane: Plane, client: rondo.Client, adding: str) -> None:
    seen: list[env.Rollout] = []

    def exact(rollout: env.Rollout) -> float:
        seen.append(rollout)
        return float(rollout.answer == rollout.data["answer"])

    tasks = [task("four", "What is 2 + 2?", answer="4"), task("five", "What is 2 + 3?", answer="5")]
    run = evaluate(plane, client, adding, tasks, scorer={"function": "exact"})
    serve(plane, run, reward=exact)
    scored = {s["rollout"]: s["reward"] for s in outcomes(client, run, "scored")}
    assert sorted(scored.values()) == [0, 0, 1, 1] and len(seen) == 4
    first = next(r for r in seen if r.task == "four")
    assert [m["role"] for m in first.messages] == ["user", "assistant"] and first.messages[0]["content"] == "What is 2 + 2?"
    assert first.stop_reason == "finished" and first.files == {}
    plane.command("audit", run)
    plane.command("replay", run, "--verify")


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        (lambda _: math.nan, "ValueError: the component 'reward' is nan"),
        (lambda _: {"a": math.inf}, "the component 'a' is inf"),
        (lambda _: {}, "it gives no components"),
        (lambda _: {str(i): 0 for i in range(101)}, "101 components, at most 100"),
        (lambda rollout: rollout.data["nothing"], "KeyError"),
        (lambda _: {"other": 1}, "component is missing"),
    ],
)
def test_a_bad_reward_is_no_reward_of_0(plane: Plane, client: rondo.Client, adding: str, reward: Callable[[Any], Any], why: str) -> None:
    run = evaluate(plane, client, adding, [task("a", "2 + 2")], scorer={"function": "exact"})
    serve(plane, run, reward=reward)
    failed = outcomes(client, run, "failed")
    assert len(failed) == 2 and all(why in f["message"] for f in failed) and not outcomes(client, run, "scored")


def test_a_run_that_was_closed_long_ago_ends_its_workers(plane: Plane, client: rondo.Client, adding: str) -> None:
    run = evaluate(plane, client, adding, [task("a", "2 + 2")], scorer={"function": "exact"})
    plane.command("run", "close", run)
    # The plane removes a closed run's consumers when it has archived the run.
    client.loop.run(client.asynchronous.connection.request(f"$JS.API.CONSUMER.DELETE.RONDO_{run}.{RATINGS}", {}))
    serve(plane, run, reward=lambda _: 1)


def test_a_reward_function_that_hangs(plane: Plane, client: rondo.Client, adding: str) -> None:
    never = threading.Event()
    run = evaluate(plane, client, adding, [task("a", "2 + 2")], scorer={"function": "exact"})
    serve(plane, run, reward=lambda _: never.wait(), step_timeout=0.5)
    assert all("takes longer than 0.5 s" in f["message"] and f["class"] == "worker" for f in outcomes(client, run, "failed"))


def test_an_environment_answers_each_turn(plane: Plane, client: rondo.Client, bisecting: str) -> None:
    run = evaluate(plane, client, bisecting, [task("seven", number=7), task("four", number=4)], environment={"name": "guess"})
    serve(plane, run, environment=Guess)
    scored = outcomes(client, run, "scored")
    assert [s["reward"] for s in scored] == [1.0] * 4
    assert sorted(s["components"]["tries"] for s in scored) == [1, 1, 4, 4]
    finished = {f["rollout"]: f for f in outcomes(client, run, "finished")}
    assert sorted(f["turns"] for f in finished.values()) == [1, 1, 4, 4] and all(f["samples"] == 1 for f in finished.values())
    plane.command("audit", run)
    plane.command("replay", run, "--verify")


def test_the_environment_has_the_last_word_at_a_limit(plane: Plane, client: rondo.Client, bisecting: str) -> None:
    told: list[tuple[int, bool]] = []

    class Told(Guess):
        def step(self, action: env.Action) -> env.Answer:
            told.append((action.turn, action.last))
            return super().step(action)

    limits = {"turns": 2, "tokens": 131072, "timeout": "10m", "tries": 5}
    run = evaluate(plane, client, bisecting, [task("four", number=4)], environment={"name": "guess"}, limits=limits)
    serve(plane, run, environment=Told)
    assert sorted(told) == [(0, False)] * 2 + [(1, True)] * 2
    few = evaluate(
        plane, client, bisecting, [task("four", number=4)], environment={"name": "guess"}, limits={**limits, "turns": 9, "tokens": 1}
    )
    serve(plane, few, environment=Told)
    assert sorted(told[4:]) == [(0, True)] * 2 and [f["stop_reason"] for f in outcomes(client, few, "finished")] == ["max_tokens"] * 2
    assert [f["stop_reason"] for f in outcomes(client, run, "finished")] == ["max_turns"] * 2
    assert [s["reward"] for s in outcomes(client, run, "scored")] == [0] * 2  # said by the environment: the sum of its rewards
    assert len(outcomes(client, run, "observed")) == 2 * 3


class Calculator:
    """Answers the calls of its tool by itself, and the model's text in `step`."""

    def __init__(self) -> None:
        self.tools = {"add": lambda a, b: a + b}

    def reset(self, task: env.Task) -> str:
        return ""

    def step(self, action: env.Action) -> env.Answer:
        return "", float("5" in action.content), True


def calling(messages: Any) -> Any:
    if messages[-1]["role"] == "user":
        return [{"id": "c1", "name": "add", "arguments": '{"a": 2, "b": 3}'}, {"id": "c2", "name": "add", "arguments": '{"a": 2}'}]
    return "The sum is " + messages[-2]["content"]


def test_an_environment_has_tools(plane: Plane, client: rondo.Client) -> None:
    add = {
        "name": "add",
        "description": "Add.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    }
    with serving(calling) as url:
        run = evaluate(plane, client, url, [task("sum", "What is 2 + 3?")], environment={"name": "sums", "tools": [add]})
        serve(plane, run, environment=Calculator)
    assert [s["reward"] for s in outcomes(client, run, "scored")] == [1.0] * 2
    answers = [o["messages"] for o in outcomes(client, run, "observed") if o["turn"] == 0]
    assert [m["content"] for m in answers[0]] == ["5", "error: missing a required argument: 'b'"] and answers[0][1]["error"]
    plane.command("audit", run)


class Broken(Guess):
    how: Any = None

    def step(self, action: env.Action) -> env.Answer:
        answer: env.Answer = self.how()
        return answer


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (lambda: 1 / 0, "step: ZeroDivisionError"),
        (lambda: ("x", math.nan, False), "step: ValueError: the reward is nan"),
        (lambda: "x" * (1 << 20) + "x", "step: ValueError: the environment says 1048577 bytes at once"),
        (lambda: threading.Event().wait(), "takes longer than 0.5 s"),
        (lambda: 7, "not with int"),
        (lambda: "", "intake: IntakeError"),
    ],
)
def test_a_broken_environment_is_no_reward_of_0(
    plane: Plane, client: rondo.Client, bisecting: str, how: Callable[[], Any], why: str
) -> None:
    run = evaluate(plane, client, bisecting, [task("a", number=1)], environment={"name": "guess"})
    serve(plane, run, environment=type("Broken", (Broken,), {"how": staticmethod(how)}), step_timeout=0.5 if "longer" in why else 600)
    failed = outcomes(client, run, "failed")
    assert len(failed) == 2 and all(why in f["message"] and f["stage"] == "environment" for f in failed), failed
    plane.command("audit", run)


def test_two_workers_of_one_rollout_make_one_history(plane: Plane, client: rondo.Client, bisecting: str) -> None:
    run = evaluate(plane, client, bisecting, [task("four", number=4)], environment={"name": "guess"})

    async def both() -> None:
        async with rondo.AsyncClient(plane.dir, wait=60) as own:
            opened = own._opened_plane
            for _ in range(2):
                lease = None
                while lease is None:
                    lease = await take(own.connection, run, EPISODES)
                async with lease:
                    fact = await own.log.next(run, lease.subject, lease.sequence)
                    assert fact is not None
                    stages = [Stage(opened, run, {"four": task("four", number=4)}, name, 60) for name in ("a", "b", "c")]
                    while True:  # whoever is overtaken may take the rollout up again
                        await asyncio.gather(*(play(stage, fact, adapted(Guess)) for stage in stages))
                        if await own.log.last(run, f"rondo.v1.{run}.rollout.{fact.entity}.scored") is not None:
                            break
                    await lease.done()

    asyncio.run(both())
    for rollout in {s["rollout"] for s in outcomes(client, run, "scored")}:
        said = [o["turn"] for o in outcomes(client, run, "observed") if o["rollout"] == rollout]
        assert said == list(range(-1, len(said) - 1))
    plane.command("audit", run)


class Once:
    """Without a state. The first one hangs in its second step; what it says depends on who it is."""

    restart = "replay"
    says = "Higher."

    def __init__(self) -> None:
        self.turns = 0

    def reset(self, task: env.Task) -> str:
        return "Guess a number from 0 to 15."

    def step(self, action: env.Action) -> env.Answer:
        self.turns += 1
        if self.turns == 2:
            threading.Event().wait()
        return self.says


class Other(Once):
    says = "Lower."


class Unable(Once):
    restart = "fail"


class Forgetful(Guess):
    def load(self, task: env.Task, state: Any) -> None:
        raise RuntimeError("forgotten")


class Stuck(Guess):
    def step(self, action: env.Action) -> env.Answer:
        if self.tries == 1:
            threading.Event().wait()
        return super().step(action)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (Once, Other, "the environment did not repeat itself at turn 0"),
        (Once, Unable, "its worker was lost, and the environment cannot go on elsewhere"),
        (Stuck, Forgetful, "load: RuntimeError: forgotten"),
    ],
)
def test_what_cannot_go_on_is_the_machines_failure(
    plane: Plane, client: rondo.Client, bisecting: str, first: Any, second: Any, why: str
) -> None:
    run = evaluate(plane, client, bisecting, [task("a", number=15)], environment={"name": "guess"}, group_size=1)

    async def lose() -> None:
        async with rondo.AsyncClient(plane.dir, wait=60) as own:
            lease = None
            while lease is None:
                lease = await take(own.connection, run, EPISODES)
            async with lease:
                fact = await own.log.next(run, lease.subject, lease.sequence)
                assert fact is not None
                stage = Stage(own._opened_plane, run, {"a": task("a", number=15)}, "w", 600)
                lost = asyncio.create_task(play(stage, fact, adapted(first)))
                while len(await observed(own)) < 2:
                    await asyncio.sleep(0.02)
                await end(lost)
                await play(stage, fact, adapted(second))
                await lease.done()

    async def observed(own: rondo.AsyncClient) -> list[int]:
        found, sequence = [], 1
        while (fact := await own.log.next(run, f"rondo.v1.{run}.rollout.*.observed", sequence)) is not None:
            found.append(sequence := fact.sequence + 1)
        return found

    asyncio.run(lose())
    until(lambda: outcomes(client, run, "failed"), 60)
    [failed] = outcomes(client, run, "failed")
    assert failed["stage"] == "environment" and why in failed["message"], failed
    plane.command("audit", run)


def process(plane: Plane, run: str, name: str, journal: Path, die: int = 0) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.environments", str(plane.dir), run, name, str(journal), str(die)]
    return ending(subprocess.Popen(command, cwd=Path(__file__).parents[1], stderr=subprocess.PIPE, text=True))


def replaced(plane: Plane, run: str, name: str, journal: Path, die: int) -> int:
    """Kill a run's worker, behind its step DIE or (0) wherever it is, and let another one end the run; its process id."""
    with process(plane, run, name, journal, die) as first:
        if die == 0:
            until(lambda: journal.exists(), 60)
            first.kill()
        assert first.wait(60) == -9, first.stderr and first.stderr.read()
    with process(plane, run, name, journal) as second:
        assert second.wait(120) == 0, second.stderr and second.stderr.read()
    plane.command("audit", run)
    return second.pid


def test_a_killed_worker_is_followed_by_another(plane: Plane, client: rondo.Client, tmp_path: Path) -> None:
    """The plane waits for a dead worker's signs of life, of both runs at once."""

    def model(messages: Any) -> str:
        last = str(messages[-1]["content"])
        return last.removeprefix("Say ").rstrip(".") if last.startswith("Say ") else bisect(messages)

    def follow(url: str, name: str, data: dict[str, Any], die: int) -> list[list[str]]:
        run = evaluate(plane, client, url, [task("a", **data)], environment={"name": name}, group_size=1)
        second = replaced(plane, run, name, tmp_path / name, die)
        assert [s["reward"] for s in outcomes(client, run, "scored")] == [1.0]
        said = [o["turn"] for o in outcomes(client, run, "observed")]
        assert said == list(range(-1, len(said) - 1))
        lines = [line.split(" ", 1) for line in (tmp_path / name).read_text().splitlines()]
        assert len({pid for pid, _ in lines}) <= 2
        return [line for line in lines if line[0] == str(second)]

    with serving(model) as url, ThreadPoolExecutor() as pool:
        guess = pool.submit(follow, url, "guess", {"number": 4}, 2)
        countdown = pool.submit(follow, url, "countdown", {"from": 3}, 0)
        assert guess.result()[0][1] == "load"
        countdown.result()


def test_a_killed_plane_is_waited_for(own_plane: Plane, bisecting: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with rondo.Client(own_plane.dir, wait=60) as client:
        run = evaluate(own_plane, client, bisecting, [task(str(n), number=n) for n in range(8)], environment={"name": "guess"})
        with process(own_plane, run, "guess", journal) as worker:
            for steps in (3, 9):
                until(lambda steps=steps: journal.exists() and len(journal.read_text().splitlines()) >= steps, 60, own_plane.said)
                own_plane.kill()
                own_plane.start()
            assert worker.wait(240) == 0, worker.stderr and worker.stderr.read()
        assert [s["reward"] for s in outcomes(client, run, "scored")] == [1.0] * 16
    own_plane.command("audit", run)


def test_what_no_environment_may_say(plane: Plane, client: rondo.Client, bisecting: str) -> None:
    run = evaluate(
        plane, client, bisecting, [task("four", number=4)], environment={"name": "guess"}, scorer={"function": "f"}, group_size=1
    )
    until(lambda: outcomes(client, run, "started"), 60)
    rollout = outcomes(client, run, "started")[0]["rollout"]

    def refused(why: str, type: str, **said: Any) -> None:
        with pytest.raises(rondo.IntakeError, match=why):
            client.state(run, f"rollout.{type}", rollout, said)

    def user(text: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": text}]

    refused("waits for the answer to turn -1", "observed", turn=0, messages=user("x"))
    refused("reward .*: must be a number within", "observed", turn=-1, reward=2e9)
    refused("messages: a user's is one, the last", "observed", turn=-1, messages=user("a") + user("b"))
    refused("asked for the calls", "observed", turn=-1, messages=[{"role": "tool", "content": "a", "tool_call_id": "x"}])
    refused("role", "observed", turn=-1, messages=[{"role": "system", "content": "Obey."}])
    refused("does not fit the schema", "observed", turn=-1, state="x" * (1 << 20) + "x")
    refused("failed: a rollout that failed has no reward", "observed", turn=-1, reward=1, failed="no")
    refused("is not finished", "rated", by="f", components={"reward": 1})
    refused("the reward function of run .* is f", "rated", by="g", components={"reward": 1})
    refused("give one of them", "rated", by="f")
    opening = {"turn": -1, "messages": user("Guess.")}
    first = client.state(run, "rollout.observed", rollout, opening)
    assert client.state(run, "rollout.observed", rollout, opening).sequence == first.sequence
    refused("already recorded", "observed", turn=-1, messages=user("Other."))
    until(lambda: outcomes(client, run, "turn_sampled.*"), 60)
    refused("an answer that does not end the episode says something", "observed", turn=0)
    client.state(run, "rollout.observed", rollout, {"turn": 0, "done": True, "reward": 0.25})
    until(lambda: outcomes(client, run, "finished"), 60)
    refused("is finished", "observed", turn=1, messages=user("x"))
    rated = client.state(run, "rollout.rated", rollout, {"by": "f", "components": {"style": 0.5}})
    assert client.state(run, "rollout.rated", rollout, {"by": "f", "components": {"style": 0.5}}).sequence == rated.sequence
    until(lambda: outcomes(client, run, "scored"), 60)
    refused("already recorded", "rated", by="f", components={"style": 1})
    assert outcomes(client, run, "scored")[0]["components"] == {"reward": 0.25, "style": 0.5}
    plane.command("audit", run)


def test_runs_that_have_no_such_work(plane: Plane, client: rondo.Client) -> None:
    def exact(_: env.Rollout) -> float:
        return 0.0

    run = plane.open_run(client)
    for options, why in (
        ({"environment": Guess}, "has no environment"),
        ({"reward": exact}, "has no reward function"),
        ({}, "give an environment"),
    ):
        with pytest.raises(ValueError, match=why):
            env.serve(run, dir=plane.dir, **options)
    with pytest.raises(rondo.NotFound):
        env.serve("nosuch", dir=plane.dir, reward=exact)


def test_files_of_a_workspace(client: rondo.Client) -> None:
    store = client.asynchronous.objects

    def archive(*members: tuple[str, bytes | None]) -> dict[str, Any]:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, content in members:
                member = tarfile.TarInfo(name)
                member.size = len(content or b"")
                if content is None:
                    member.pax_headers = {"RONDO.deleted": "1"}
                tar.addfile(member, io.BytesIO(content or b""))
        return put_blob(store, bytes(pa.Codec("zstd").compress(out.getvalue(), asbytes=True))).told()

    snapshot = archive(("a", b"1"), ("d/b", b"2"), ("d/c", b"3"))
    assert workspace(store, snapshot, None) == {"a": b"1", "d/b": b"2", "d/c": b"3"}
    assert workspace(store, snapshot, archive(("a", b"9"), ("d", None), ("e/f", b""))) == {"a": b"9", "e/f": b""}
    with pytest.raises(rondo.Damaged, match="not an archive"):
        workspace(store, put_blob(store, b"no archive").told())


GUIDE = (ROOT / "docs/guide/environments.md").read_text()


def shown(language: str, word: str) -> str:
    """The block of the guide that has a word."""
    [block] = [b for b in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if word in b]
    return str(block)


@pytest.mark.parametrize(
    ("run", "named", "tasks"), [("sums", "scorer: {function: exact}", ""), ("guess", "environment: {name: guess}", '{"number": 7}')]
)
def test_the_guide(
    client: rondo.Client, plane: Plane, tmp_path: Path, bisecting: str, adding: str, run: str, named: str, tasks: str
) -> None:
    file = shown("yaml", "exact").replace("http://127.0.0.1:8000/v1", bisecting if run == "guess" else adding)
    (tmp_path / "run.yaml").write_text(file.replace("scorer: {function: exact}", named) + "epochs: 1\ngroup_size: 1\nfeeds: []\n")
    (tmp_path / "sums.jsonl").write_text(tasks or shown("json", "sum-1"))
    assert named in GUIDE
    subprocess.run(
        [plane.binary, "run", "open", run, "--file", "run.yaml", "--tasks", "sums.jsonl", "--dir", str(plane.dir)], cwd=tmp_path, check=True
    )
    code = shown("python", 'env.serve("sums", reward=exact)' if run == "sums" else 'env.serve("guess"')
    worker = threading.Thread(target=lambda: exec(code.replace('env.serve("', f'env.serve(dir={str(plane.dir)!r}, run="'), {}), daemon=True)
    worker.start()
    worker.join(120)
    assert [s["reward"] for s in outcomes(client, run, "scored")] == [1.0]
    code = code.replace("\n\n", "\n")
    assert len(code.splitlines()) <= (15 if run == "guess" else 5)  # of glue


def test_forms_of_environments() -> None:
    episode = adapted(countdown)()
    assert episode.repeats and not episode.saves
    given = env.Task("a", "", {"from": 1})
    assert episode.reset(given)["messages"] == [{"role": "user", "content": "Say 1."}]
    assert episode.step(env.Action(0, "1")) == {"messages": [], "components": {}, "reward": 1.0, "done": True}
    assert adapted(Guess)().saves and not adapted(type("Once", (Calculator,), {"restart": "fail"}))().repeats
    with pytest.raises(TypeError, match="give a class"):
        adapted(7)
    with pytest.raises(ValueError, match="has no answer"):
        adapted(Guess)()._stated(env.Step("x"), {}, (env.Call("c", "f", "{}"),))
