"""rondo.env.nemo_gym against resources servers that NeMo Gym ships: each one in a process of its own, started as Gym starts it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import resources_servers
from nemo_gym.openai_utils import NeMoGymResponse

import rondo
from rondo import env
from rondo.connection import end
from rondo.env.environment import Adapted, adapted
from rondo.env.episode import Stage
from rondo.env.episode import play as play_episode
from rondo.env.lease import EPISODES, take
from rondo.env.nemo_gym import NemoGym, Tasks
from tests.conftest import Plane, until
from tests.model import serving
from tests.test_env import evaluate, outcomes, serve
from tests.test_env import task as made

GUIDE = Path(__file__).resolve().parents[3] / "docs/guide/nemo-gym.md"

#: Where Gym's servers are installed.
[SHIPPED] = [Path(folder) for folder in resources_servers.__path__]

#: One with a state for each session, one whose verdict another model gives, and the others that are played.
COUNTER, JUDGED = "example_session_state_mgmt", "simpleqa"
STEPS, REWARDS, WORKPLACE, TURNS = (
    "example_multi_step",
    "example_tool_call_multireward",
    "workplace_assistant",
    "example_multi_turn_gymnasium",
)


def data(name: str, file: str = "example") -> Path:
    return SHIPPED / name / "data" / f"{file}.jsonl"


def rows(name: str, file: str = "example") -> list[dict[str, Any]]:
    return [json.loads(line) for line in data(name, file).read_text().split("\n") if line]


def free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(name: str, port: int, folder: str) -> subprocess.Popen[bytes]:
    """A server of Gym's, with the configuration that Gym's command hands on to its process. Its judge, where it has one, is nowhere."""
    own: dict[str, Any] = {"entrypoint": "app.py", "domain": "agent", "host": "127.0.0.1", "port": port}
    if name == JUDGED:
        own |= {"judge_model_server": {"type": "responses_api_models", "name": "nobody"}, "judge_responses_create_params": {"input": []}}
    whole = {"head_server": {"host": "127.0.0.1", "port": 1}, "dry_run": False, "served": {"resources_servers": {name: own}}}
    variables = {**os.environ, "NEMO_GYM_CONFIG_DICT": json.dumps(whole), "NEMO_GYM_CONFIG_PATH": "served"}
    command = [sys.executable, "-m", f"resources_servers.{name}.app"]
    return subprocess.Popen(command, env=variables, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def server(name: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        process = started(name, port, folder)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def tasks_of(name: str, file: str = "example") -> list[env.Task]:
    return [
        env.Task(f"row-{n}", row["instruction"], {"row": row["row"]}, rollout=f"g{n}")
        for n, row in enumerate(Tasks(data(name, file)).rows(), 1)
    ]


def play(port: int, **more: Any) -> Any:
    return adapted(NemoGym(f"http://127.0.0.1:{port}", **more))


def called(turn: int, name: str, arguments: Any, **more: Any) -> env.Action:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return env.Action(turn, "", [env.Call(f"c{turn}", name, text)], finish_reason="tool_calls", **more)


def heard(said: Mapping[str, Any]) -> list[str]:
    return [message["content"] for message in said["messages"]]


def gyms_tasks_are_read() -> None:
    read, refused = {}, {}
    for path in sorted(SHIPPED.glob("*/data/example.jsonl")):
        try:
            read[path.parts[-3]] = Tasks(path)
        except ValueError as error:
            refused[path.parts[-3]] = str(error)
    assert len(read) == 115 and len(refused) == 30, (len(read), refused)
    assert "different tools" in refused["xlam_fc"] and "more than text" in refused["image_tools"], refused
    assert "line 1: the task does not begin with one text" in refused["multichallenge"], refused
    assert len(read[WORKPLACE].tools) == 27 and read["wordle"].system_prompt
    assert [row["row"] for row in read[STEPS].rows()] == rows(STEPS)
    print(f"  the examples of {len(read)} servers are read, those of {len(refused)} are refused", flush=True)


def turns(output: Sequence[Mapping[str, Any]]) -> Iterator[env.Action]:
    """The turns of a response of Gym's: what stands between what the environment says."""
    said, number = [], 0
    for item in [*output, {"type": "function_call_output"}]:
        if item["type"] != "function_call_output" and item.get("role") != "user":
            said.append(item)
        elif said:
            text = "".join(part["text"] for one in said if one["type"] == "message" for part in one["content"])
            thought = "".join(part["text"] for one in said if one["type"] == "reasoning" for part in one["summary"])
            calls = [env.Call(one["call_id"], one["name"], one["arguments"]) for one in said if one["type"] == "function_call"]
            yield env.Action(number, text, calls, thought, "tool_calls" if calls else "stop")
            said, number = [], number + 1


def gyms_own_rollouts_get_gyms_rewards(ports: Mapping[str, int]) -> None:
    """Records of Gym's agent, played turn by turn: the same answers, reward and numbers. A record does not hold all of its task."""
    count = 0
    for name, port in ports.items():
        make, whole = play(port), {task.instruction: task for task in tasks_of(name)}
        for task, recorded in zip(tasks_of(name, "example_rollouts"), rows(name, "example_rollouts"), strict=True):
            episode, outputs = make(), []
            assert not episode.reset(whole.get(task.instruction, task))["messages"]
            for action in turns(recorded["response"]["output"]):
                said = episode.step(action)
                outputs += heard(said)
            episode.close()
            assert said["done"] and said["reward"] == recorded["reward"], (name, said, recorded["reward"])
            heard_then = [
                item.get("output") or item["content"]
                for item in recorded["response"]["output"]
                if "output" in item or item.get("role") == "user"
            ]
            assert [text.replace(" ", "") for text in outputs] == [text.replace(" ", "") for text in heard_then], (
                name,
                outputs,
                heard_then,
            )
            numbers = {key: float(value) for key, value in recorded.items() if isinstance(value, (bool, int, float)) and key[0] != "_"}
            numbers = {key: value for key, value in numbers.items() if key not in ("terminated", "truncated")}
            assert {"reward": said["reward"], **said["components"]} == numbers, (name, said, numbers)
            count += 1
    print(f"  {count} rollouts of {len(ports)} servers", flush=True)


def a_workplace_s_tasks_are_solved(port: int) -> None:
    """Each task of the server with 27 tools by the calls that it wants, and by none."""
    for task in tasks_of(WORKPLACE):
        wanted = [(call["name"], call["arguments"]) for call in task.data["row"]["ground_truth"]]
        for calls in (wanted, []):
            episode = play(port)()
            episode.reset(task)
            for turn, (name, arguments) in enumerate(calls):
                episode.step(called(turn, name, arguments))
            said = episode.step(env.Action(len(calls), "Done."))
            assert said["done"] and said["reward"] == float(calls == wanted), (task, calls, said)
            episode.close()


def episodes_at_once_have_sessions_of_their_own(port: int) -> None:
    make, tasks = play(port), tasks_of(COUNTER)[:3]
    several = [make() for _ in tasks]
    for episode, task in zip(several, tasks, strict=True):
        episode.reset(task)
    for n, episode in enumerate(several):
        assert heard(episode.step(called(0, "increment_counter", {"count": n}))) == ['{"success":true}']
    counts = [heard(episode.step(called(1, "get_counter_value", {}))) for episode in several]
    assert counts == [[f'{{"count":{task.data["row"]["initial_count"] + n}}}'] for n, task in enumerate(tasks)], counts
    assert make().repeats and not play(port, restart="fail")().repeats


def errors_of_tools_are_the_model_s_to_read(port: int) -> None:
    [task, *_] = tasks_of(COUNTER)
    episode = play(port)()
    episode.reset(task)
    for turn, (name, arguments, why) in enumerate(
        [
            ("increment_counter", "no JSON", "Invalid tool call arguments"),
            ("increment_counter", "[1]", "must be an object"),
            ("increment_counter", {"count": "many"}, "valid integer"),
            ("verify", {**task.data["row"], "response": {}}, "There is no tool verify"),
            ("seed_session", {"initial_count": 6}, "There is no tool seed_session"),
            ("../verify", {}, "There is no tool"),
        ]
    ):
        [answer] = heard(episode.step(called(turn, name, arguments)))
        assert why in answer, answer
    assert heard(episode.step(called(6, "get_counter_value", ""))) == ['{"count":3}']
    episode.close()


def what_was_said_is_a_response_of_gyms(port: int) -> None:
    """The response that is verified is one of Gym's class, also where the model was cut or has said nothing."""
    for cut, given in ((False, ""), (True, "I th")):
        episode = play(port)()
        episode.reset(tasks_of(COUNTER)[0])
        seen: list[Any] = []
        session = episode._environment._session
        session.post = lambda path, body, post=session.post, seen=seen: seen.append(body) or post(path, body)
        episode.step(called(0, "increment_counter", {"count": 3}))
        calls = [env.Call("c1", "increment_counter", '{"cou')] if cut else []
        said = episode.step(env.Action(1, given, calls, "Hm.", "length" if cut else "stop"))
        response = NeMoGymResponse.model_validate(seen[-1]["response"])
        assert said["done"] and said["reward"] == 1.0, said
        kinds = [item.type for item in response.output]
        assert kinds == ["function_call", "function_call_output", "reasoning", *(["message", "function_call"] if cut else [])], kinds
        assert (response.status, bool(response.incomplete_details)) == (("incomplete", True) if cut else ("completed", False))
        episode.close()


def no_verdict_is_no_reward_of_0(ports: Mapping[str, int]) -> None:
    """The multi-step server answers 500 to a call without values. One without its judge gives a reward of 0 to be masked."""
    bad = called(0, "extract_synonym_values", {"other": 1})
    for name, before, why in ((STEPS, [bad], "verify with 500"), (JUDGED, [], "no reward for this: judge_failed")):
        episode = play(ports[name])()
        episode.reset(tasks_of(name)[0])
        for action in before:
            episode.step(action)
        try:
            said = episode.step(env.Action(len(before), "Done."))
        except RuntimeError as error:
            assert why in str(error), error
        else:
            raise AssertionError(f"a server that could not verify gave {said}")
        episode.close()


def killed_and_started_again(port: int, process: subprocess.Popen[bytes], servers: ExitStack) -> None:
    """The cookie is one that the new process takes: it would go on counting from 0."""
    episode = play(port)()
    episode.reset(tasks_of(COUNTER)[0])
    process.kill()
    process.wait()
    servers.enter_context(server(COUNTER, port))
    again = play(port, patience=300)()
    again.reset(tasks_of(COUNTER)[0])  # waits until the new one listens
    for _ in range(2):
        try:
            answer = episode.step(called(0, "get_counter_value", {}))
        except ConnectionError:
            continue
        raise AssertionError(f"a server that had lost the session answered {answer}")
    assert heard(again.step(called(0, "get_counter_value", {}))) == ['{"count":3}']
    for one in (episode, again):
        one.close()


def a_session_is_kept(idle: Adapted, since: float) -> None:
    """Gym's server ends a connection on which nothing comes for 30 s. A model may think longer."""
    while time.monotonic() < since + 35:
        time.sleep(1)
    assert heard(idle.step(called(0, "get_counter_value", {}))) == ['{"count":3}']
    idle.close()


def counts(messages: Sequence[Mapping[str, Any]]) -> Any:
    """A model that adds what it is told to, asks for the count, and says it. "add 1 then add 2 then get the count"."""
    wanted = [("increment_counter", {"count": int(number)}) for number in re.findall(r"add (\d+)", messages[0]["content"])]
    wanted.append(("get_counter_value", {}))
    done = sum(message["role"] == "tool" for message in messages)
    if done == len(wanted):
        return str(messages[-1]["content"])
    name, arguments = wanted[done]
    return [{"id": f"c{done}", "name": name, "arguments": json.dumps(arguments)}]


def opened(plane: Plane, client: rondo.Client, url: str, rows: list[dict[str, Any]], **changes: Any) -> str:
    environment = {"name": "counter", "tools": Tasks(data(COUNTER)).tools}
    tasks = [made(f"row-{n}", row["instruction"], row=row["row"]) for n, row in enumerate(rows, 1)]
    return evaluate(plane, client, url, tasks, environment=environment, **changes)


def a_plane_s_rollouts_are_played(plane: Plane, port: int) -> None:
    """The guide's lines, and a run of the file that they make: groups of two, several tasks at once. Then a limit ends the episodes."""
    prepare, work = [block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "rondo.env.nemo_gym" in block]
    assert len([line for line in (prepare + work).split("\n") if line]) <= 15, (prepare, work)
    printed: list[str] = []
    given: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, serving(counts) as url, rondo.Client(plane.dir, wait=60) as client:
        tasks, file = Path(folder, "counter.jsonl"), Path(folder, "counter.yaml")
        exec(
            prepare.replace('"example.jsonl"', repr(str(data(COUNTER)))).replace('"counter.jsonl"', repr(str(tasks))),
            {"print": printed.append},
        )
        real, env.serve = env.serve, lambda run, **options: given.update(options)  # type: ignore[assignment]
        try:
            exec(work.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{port}"), {})
        finally:
            env.serve = real
        file.write_text(
            "\n".join([*printed, "policy: small", f"endpoint: {url}", "group_size: 2", "epochs: 1", "feeds: []", "staleness: {max: 0}"])
        )
        plane.command("run", "open", "counter", "--file", str(file), "--tasks", str(tasks))
        serve(plane, "counter", environment=given["environment"])
        scored = outcomes(client, "counter", "scored")
        assert [s["reward"] for s in scored] == [1.0] * 10 and not outcomes(client, "counter", "failed"), scored
        row = json.loads(tasks.read_text().split("\n")[0])
        limits = {"turns": 2, "tokens": 131072, "timeout": "10m", "tries": 5}
        limited = opened(plane, client, url, [row], limits=limits)
        serve(plane, limited, environment=given["environment"])
        assert [f["stop_reason"] for f in outcomes(client, limited, "finished")] == ["finished"] * 2
        assert [s["reward"] for s in outcomes(client, limited, "scored")] == [1.0] * 2, "the last turn before a limit was not verified"
    for run in ("counter", limited):
        plane.command("audit", run)


def a_killed_server_fails_the_rollout_and_its_task_is_played_again(plane: Plane, port: int) -> None:
    """The rollout is the machine's failure and no reward of 0, and the next one of the task has its reward."""
    with ExitStack() as servers:
        running, killed = [servers.enter_context(server(COUNTER, port))], []
        listening(port)

        def says(messages: Sequence[Mapping[str, Any]]) -> Any:
            if len(messages) == 3 and not killed:  # in the middle of the first episode
                running[0].kill()
                killed.append(running[0].wait())
                running.append(servers.enter_context(server(COUNTER, port)))
                listening(port)
            return counts(messages)

        with serving(says) as url, rondo.Client(plane.dir, wait=60) as client:
            run = opened(plane, client, url, list(Tasks(data(COUNTER)).rows())[:1], group_size=1, epochs=2, in_flight=1)
            serve(plane, run, environment=NemoGym(f"http://127.0.0.1:{port}"))
            [failed], [scored] = outcomes(client, run, "failed"), outcomes(client, run, "scored")
        assert "lost in the middle of the episode" in failed["message"], failed
        assert killed == [-9] and failed["stage"] == "environment" and "reward" not in failed, failed
        assert scored["rollout"] != failed["rollout"] and scored["reward"] == 1.0, scored
        plane.command("audit", run)


def another_worker_goes_on_in_a_new_session(plane: Plane, port: int) -> None:
    """The first worker is lost while the model thinks about its third turn. The second calls both tools again, and counts nothing twice."""
    lost, sessions = threading.Event(), []

    def says(messages: Sequence[Mapping[str, Any]]) -> Any:
        assert len(messages) < 5 or lost.wait(120)
        return counts(messages)

    def make() -> Any:
        sessions.append(NemoGym(f"http://127.0.0.1:{port}")())
        return sessions[-1]

    async def work(url: str) -> str:
        async with rondo.AsyncClient(plane.dir, wait=60) as client:
            run = opened(plane, held, url, list(Tasks(data(COUNTER)).rows())[:1], group_size=1)
            config = await client.config(run)
            lease = None
            while lease is None:
                lease = await take(client.connection, run, EPISODES)
            async with lease:
                fact = await client.log.next(run, lease.subject, lease.sequence)
                assert fact is not None
                stage = Stage(client._opened_plane, run, {one["name"]: one for one in config["tasks"]}, "w", 600, config["limits"])
                first = asyncio.create_task(play_episode(stage, fact, adapted(make)))
                while len(await asyncio.to_thread(outcomes, held, run, "observed")) < 3:
                    await asyncio.sleep(0.02)
                await end(first)
                second = asyncio.create_task(play_episode(stage, fact, adapted(make)))
                while len(sessions) < 2 or not sessions[1]._output:  # it calls the tools again
                    await asyncio.sleep(0.02)
                lost.set()
                await second
                await lease.done()
            return run

    with serving(says) as url, rondo.Client(plane.dir, wait=60) as held:
        run = asyncio.run(work(url))
        until(lambda: outcomes(held, run, "scored") or outcomes(held, run, "failed"), 60)
        [scored] = outcomes(held, run, "scored")
        assert scored["reward"] == 1.0 and len(sessions) == 2, scored
    plane.command("audit", run)


def listening(port: int) -> None:
    for _ in range(3000):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server does not listen within 5 minutes")


def check(plane: Plane) -> None:
    with ExitStack() as servers:
        ports = {name: free() for name in (COUNTER, STEPS, REWARDS, WORKPLACE, JUDGED, TURNS)}
        processes = {name: servers.enter_context(server(name, port)) for name, port in ports.items()}
        for port in ports.values():
            listening(port)
        at, idle, since = ports[COUNTER], play(ports[COUNTER])(), time.monotonic()
        idle.reset(tasks_of(COUNTER)[0])
        for name, run in {
            "gyms_tasks_are_read": gyms_tasks_are_read,
            "gyms_own_rollouts_get_gyms_rewards": lambda: gyms_own_rollouts_get_gyms_rewards(
                {name: ports[name] for name in (COUNTER, STEPS, REWARDS, TURNS)}
            ),
            "a_workplace_s_tasks_are_solved": lambda: a_workplace_s_tasks_are_solved(ports[WORKPLACE]),
            "episodes_at_once_have_sessions_of_their_own": lambda: episodes_at_once_have_sessions_of_their_own(at),
            "errors_of_tools_are_the_model_s_to_read": lambda: errors_of_tools_are_the_model_s_to_read(at),
            "what_was_said_is_a_response_of_gyms": lambda: what_was_said_is_a_response_of_gyms(at),
            "no_verdict_is_no_reward_of_0": lambda: no_verdict_is_no_reward_of_0(ports),
            "a_plane_s_rollouts_are_played": lambda: a_plane_s_rollouts_are_played(plane, at),
            "another_worker_goes_on_in_a_new_session": lambda: another_worker_goes_on_in_a_new_session(plane, at),
            "a_session_is_kept": lambda: a_session_is_kept(idle, since),
            "killed_and_started_again": lambda: killed_and_started_again(at, processes[COUNTER], servers),
        }.items():
            run()
            print(f"{name} ok", flush=True)
    a_killed_server_fails_the_rollout_and_its_task_is_played_again(plane, free())
    print("a_killed_server_fails_the_rollout_and_its_task_is_played_again ok", flush=True)
