"""rondo.env_server against verifiers' own EnvServer: episodes go on while the plane is killed, and traces come back from the log."""

from __future__ import annotations

import asyncio
import base64
import json
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
GUIDE = ROOT / "docs/guide/environment-libraries.md"
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "clients/python")]

os.environ["HF_HUB_OFFLINE"] = "1"  # the tokenizer lies in a folder

import numpy as np
from counting import Count, CountData
from mended import binary
from verifiers import v1 as vf
from verifiers.v1.configs.client import TrainClientConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.serve import EnvClient
from verifiers.v1.serve.delta import dump, pack, unpack

import rondo
from rondo.captures import AsyncCaptures
from rondo.env_server import Episodes, Traced, traced, trajectory
from rondo.trajectory import encode
from tests.conftest import Plane

#: Episodes that are played while the plane is killed, and how often it is.
EPISODES, KILLS = int(os.environ.get("RONDO_EPISODES", "50")), int(os.environ.get("RONDO_PLANE_KILLS", "10"))

SPAWN = multiprocessing.get_context("spawn")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def tokenizer(folder: Path) -> str:
    """A tokenizer whose tokens are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", chat_template=TEMPLATE)
    fast.save_pretrained(folder)
    return str(folder)


@contextmanager
def engine(model: str) -> Iterator[str]:
    """A server with vLLM's generate endpoint, which takes its time; its log-probabilities and experts follow from the tokens."""
    from transformers import AutoTokenizer

    of = AutoTokenizer.from_pretrained(model)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({"data": [{"id": model, "max_model_len": 4096}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(0.3)
            prompt = asked["token_ids"]
            said = [*of.encode(f"Number {len(prompt)}.", add_special_tokens=False), of.eos_token_id]
            rows = len(prompt) + len(said) - 1
            experts = (np.arange(rows * 2 * 2) % 251).astype(np.uint8)
            routed = {"data": base64.b64encode(experts.tobytes()).decode(), "shape": [rows, 2, 2], "start": 0, "dtype": "uint8"}
            logprobs = [{"token": f"token_id:{token}", "logprob": -1 / (3 + token + len(prompt))} for token in said]
            choice = {"routed_experts": routed, "index": 0, "token_ids": said, "finish_reason": "stop", "logprobs": {"content": logprobs}}
            self._answer({"request_id": "r", "choices": [choice]})

        def _answer(self, said: Any) -> None:
            body = json.dumps(said, separators=(",", ":")).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # the server has given the episode up
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}/v1"
    finally:
        listening.shutdown()
        listening.server_close()


def serve(config: dict[str, Any], kept: str, addresses: Any) -> None:
    """An EnvServer that keeps what it has of each episode in a file, with every trace that it began."""
    from verifiers.v1.serve import EnvServer
    from verifiers.v1.serve.delta import pack
    from verifiers.v1.utils.loaders import resolve_env_config

    class Keeping(EnvServer):
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            run_slot = self.env.run_slot

            async def keeping(slot: Any, *args: Any, on_trace: Any, **kwargs: Any) -> Any:
                begun = []
                episode = await run_slot(slot, *args, on_trace=lambda t: (begun.append(t.id), on_trace(t)), **kwargs)
                Path(kept, episode.id).write_bytes(pack({"episode": dump(episode), "begun": begun}))
                return episode

            self.env.run_slot = keeping

    Keeping.run_server(addresses, config=resolve_env_config(config), address="tcp://127.0.0.1:0")


@contextmanager
def server(folder: Path, **env: Any) -> Iterator[tuple[str, Path, Any]]:
    """An EnvServer in a process of its own: its address, the folder of what it keeps, and the process."""
    kept, addresses = folder / f"kept-{time.monotonic_ns()}", SPAWN.Queue()
    kept.mkdir()
    agent = {"runtime": {"type": "subprocess"}, "retries": {"max_retries": 2}}
    process = SPAWN.Process(target=serve, args=({"taskset": {"id": "counting"}, "agent": agent, **env}, str(kept), addresses), daemon=True)
    process.start()
    try:
        while addresses.empty():
            assert process.is_alive(), "the server has ended"
            time.sleep(0.1)
        yield addresses.get(), kept, process
    finally:
        process.kill()
        process.join()


def task(name: str, **more: Any) -> Count:
    return Count(CountData(idx=0, name=name, prompt=f"Count for {name}.", **more), vf.TaskConfig())


def run_of(plane: Plane, size: int, groups: int) -> str:
    with rondo.Client(plane.dir, wait=60) as client:
        return plane.open_run(client, group_size=size, feeds=[{"name": "trainer", "groups_per_batch": groups}])


def own(kept: Path, id: str) -> tuple[WireEpisode, list[str]]:
    """What the server had itself: an episode and the ids of the traces that it began."""
    found = unpack((kept / id).read_bytes())
    return WireEpisode.model_validate(found["episode"]), found["begun"]


async def the_plane_is_killed(plane: Plane, address: str, kept: Path, url: str, model: str) -> None:
    """The trace that the log gives is the server's own, for every episode, and each is trained on once."""
    assert EPISODES % 2 == 0, "episodes are played in groups of two"
    run, over, theirs = run_of(plane, 2, EPISODES // 2), 0, {}
    remote = EnvClient(address)
    await remote.wait_for_server_startup(300)
    at_once, kills = asyncio.Semaphore(8), [EPISODES * (k + 1) // (KILLS + 1) - 4 for k in range(KILLS)]
    async with rondo.AsyncClient(plane.dir, wait=60) as client:
        episodes = Episodes(client, run, remote, TrainClientConfig(base_url=url, renderer_model_name=model), model)

        async def play(i: int) -> str:
            asked = task(f"count-{i // 2}", turns=2 + i // 2 % 3, flaky=int(i // 2 % 3 == 1))
            return await episodes.play(asked, group=f"g{i // 2}", member=i % 2, size=2)

        async def count(i: int) -> None:
            nonlocal over
            async with at_once:
                assert await play(i) == f"xg{i // 2}-{i % 2}"
            over += 1

        async def kill() -> None:
            for after in kills:
                while over < after:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.2)
                await asyncio.to_thread(plane.kill)
                await asyncio.sleep(0.5)  # the server goes on
                await asyncio.to_thread(plane.start)

        await asyncio.gather(kill(), *(count(i) for i in range(EPISODES)))
        retracted = deltas = 0
        for i in range(EPISODES):
            rollout = f"xg{i // 2}-{i % 2}"
            ours = await traced(client, run, rollout)
            assert ours.retired and not ours.lost and ours.episode is not None, ours
            theirs[rollout], begun = own(kept, ours.episode.id)
            assert dump(ours.episode) == dump(theirs[rollout]), f"{rollout}: the log has another trace than the server"
            [trace] = ours.episode.traces
            assert trace.reward == 0.5 and trace.branches[0].routed_experts is not None
            assert [t["id"] for t in ours.discarded] == [id for id in begun if id != trace.id]
            retracted += len(ours.discarded)
            deltas += len([f async for f in AsyncCaptures(client, run).facts(ours.capture, "recorded")]) - 1
            assert await play(i) == rollout  # what is handed in is not played again
    await remote.close()
    assert len(list(kept.iterdir())) == EPISODES
    assert retracted == len([g for g in range(EPISODES // 2) if g % 3 == 1])
    samples(plane, run, theirs)
    plane.command("audit", run)
    seen = f"{EPISODES} episodes of {deltas} deltas, {len(kills)} kills of the plane, {retracted} traces discarded"
    print(f"  {seen}: all as the server had them", flush=True)


class Wrong(vf.TaskData):
    """What the server takes for no task of its own."""

    turns: str = "three"


def samples(plane: Plane, run: str, theirs: dict[str, WireEpisode]) -> None:
    """The batch has the tokens of the servers' traces: a sample for each branch, and what was sampled is trained on once."""
    with rondo.Feed(run, "trainer", dir=plane.dir, timeout=60) as feed:
        batch = next(feed)
    wanted = []
    for rollout in sorted(theirs):
        seen: set[int] = set()
        for branch in theirs[rollout].traces[0].branches:
            mask = [sampled and id(node) not in seen for node in branch.nodes for sampled in node.mask]
            wanted.append((rollout, branch.token_ids, mask, np.float32(branch.logprobs) * mask))
            seen |= {id(node) for node in branch.nodes}
    rows = sorted(range(len(wanted)), key=lambda row: (batch["rollout_id"][row], row))
    assert len(batch["rollout_id"]) == len(wanted) and any(wanted[row][2] for row in rows)
    for row, (rollout, ids, mask, logprobs) in zip(rows, wanted, strict=True):
        got = batch.tokens.row(row).tolist(), batch.loss_mask.row(row).tolist()
        assert (batch["rollout_id"][row], *got) == (rollout, ids, mask)
        assert np.array_equal(batch.sampler_logprobs.row(row), logprobs)


async def what_the_server_discards_is_no_sample(plane: Plane, address: str, kept: Path, url: str, model: str) -> None:
    """An episode beyond the server's time is discarded; one that it never ends is given up. Both fail, and a third is trained on."""
    run = run_of(plane, 1, 1)
    with server(kept.parent, timeout={"episode": 20}) as (timed, kept_timed, process):
        patient, remote = EnvClient(address), EnvClient(timed)
        await remote.wait_for_server_startup(300)
        async with rondo.AsyncClient(plane.dir, wait=60) as client:
            asked = (TrainClientConfig(base_url=url, renderer_model_name=model), model)
            await Episodes(client, run, patient, *asked).play(task("fine", turns=2), group="fine", member=0, size=1)
            given = (client, run, remote, *asked)
            await Episodes(*given).play(task("late", turns=1, hangs=True), group="late", member=0, size=1)
            wrong: Any = Count(Wrong(name="wrong", prompt="Count."), vf.TaskConfig())  # type: ignore[arg-type]
            await Episodes(*given).play(wrong, group="wrong", member=0, size=1)
            # A server that is dead does not answer.
            dead = asyncio.create_task(Episodes(*given, timeout=4).play(task("dead", turns=1, hangs=True), group="dead", member=0, size=1))
            await asyncio.sleep(2)
            process.kill()
            await dead
            fine, late, lost = [await traced(client, run, f"x{name}-0") for name in ("fine", "late", "dead")]
            assert late.episode is not None and not late.episode.traces and not late.episode.ok
            assert dump(late.episode) == dump(own(kept_timed, late.episode.id)[0])
            [gone] = late.discarded
            assert [n["message"]["role"] for n in gone["nodes"]] == ["user", "assistant"] and lost.lost and lost.retired
            failed = [await client.log.last(run, f"rondo.v1.{run}.rollout.x{name}-0.failed") for name in ("late", "wrong", "dead")]
            assert [f.data["class"] for f in failed if f] == ["discarded", "environment", "deadline"], failed
            assert failed[0] and "discarded the episode's 1 traces" in failed[0].data["message"], failed[0]
            books = plane.command("trajectories", "show", run, "xlate-0")
            assert "failed: harness, discarded: the environment server discarded" in books, books
            assert failed[1] and "validation error" in failed[1].data["message"], failed[1]
            assert fine.episode is not None and fine.episode.ok
            samples(plane, run, {"xfine-0": own(kept, fine.episode.id)[0]})
        await remote.close()
        await patient.close()
    plane.command("audit", run)


async def a_lost_worker_is_no_lost_episode(plane: Plane, address: str, kept: Path, url: str, model: str) -> None:
    """Gone in the middle: another worker plays the episode again. Gone at the end: it is handed in from the log. Of two, one works."""
    run, theirs = run_of(plane, 1, 4), {}

    class Gone(Exception):
        pass

    async def gone(*_: Any, **__: Any) -> None:
        raise Gone

    async with rondo.AsyncClient(plane.dir, wait=60) as client:
        for group, attempts in (("middle", 2), ("end", 1)):
            remote, asked, place = EnvClient(address), task(group, turns=2, forks=group == "end"), {"group": group, "member": 0, "size": 1}
            given = (run, remote, TrainClientConfig(base_url=url, renderer_model_name=model), model)
            playing = asyncio.create_task(Episodes(client, *given).play(asked, **place))
            if group == "middle":
                while await client.log.last(run, f"rondo.v1.{run}.capture.xmiddle-0-1.recorded") is None:
                    await asyncio.sleep(0.05)
                playing.cancel()
            else:
                client.publish_trajectory = gone  # type: ignore[method-assign,assignment]
            await asyncio.wait({playing})
            assert playing.cancelled() or isinstance(playing.exception(), Gone)
            client.__dict__.pop("publish_trajectory", None)
            await Episodes(client, *given).play(asked, **place)
            there = await traced(client, run, f"x{group}-0")
            assert there.capture == f"x{group}-0-{attempts}" and there.retired and there.episode is not None, there
            theirs[f"x{group}-0"] = own(kept, there.episode.id)[0]
            await remote.close()
        remote, asked = EnvClient(address), task("slow", turns=2)
        given = (run, remote, TrainClientConfig(base_url=url, renderer_model_name=model), model)
        playing = asyncio.create_task(Episodes(client, *given).play(asked, group="slow", member=0, size=1))
        while await client.log.last(run, f"rondo.v1.{run}.capture.xslow-0-1.recorded") is None:
            await asyncio.sleep(0.05)
        await AsyncCaptures(client, run).lose("xslow-0-1", "end")  # another worker takes it for lost, and it is not
        await playing
        slow = await traced(client, run, "xslow-0")
        assert slow.retired and not slow.lost and slow.episode is not None, slow
        theirs["xslow-0"] = own(kept, slow.episode.id)[0]
        await remote.close()
        remote, asked = EnvClient(address), task("both", turns=1)
        given = (run, remote, TrainClientConfig(base_url=url, renderer_model_name=model), model)
        two = [Episodes(client, *given).play(asked, group="both", member=0, size=1) for _ in range(2)]
        [refused] = [e for e in await asyncio.gather(*two, return_exceptions=True) if isinstance(e, BaseException)]
        assert isinstance(refused, rondo.Failed) and "Is it played elsewhere?" in str(refused), refused
        both = await traced(client, run, "xboth-0")
        assert both.retired and both.episode is not None and both.capture == "xboth-0-1"
        theirs["xboth-0"] = own(kept, both.episode.id)[0]
        await remote.close()
        played = [own(kept, path.name)[0].task.data.name for path in kept.iterdir()]
        assert played.count("end") == 1, "an episode whose end is on the log was played again"
        first = [fact.type async for fact in AsyncCaptures(client, run).facts("xmiddle-0-1")]
        assert first[0] == "capture.begun" and first[-1] == "capture.incomplete" and "capture.retired" not in first, first
    samples(plane, run, theirs)


async def the_guide_s_lines_play(plane: Plane, address: str, _: Path, url: str, model: str) -> None:
    run = run_of(plane, 4, 1)
    [code] = [block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "rondo.env_server" in block]
    places = {"/srv/rondo": str(plane.dir), "tcp://127.0.0.1:5000": address, "http://127.0.0.1:8000/v1": url, '"counting"': repr(run)}
    for shown, here in places.items():
        assert shown in code
        code = code.replace(shown, here)
    lines: dict[str, Any] = {}
    exec(code.replace('"Qwen/Qwen3-4B"', repr(model)), lines)
    await lines["play"]([task("shown", turns=1)])
    with rondo.Feed(run, "trainer", dir=plane.dir, timeout=60) as feed:
        assert next(feed)["rollout_id"].tolist() == [f"xg0-{member}" for member in range(4)]


def branches_are_samples_and_what_cannot_be_trained_on_fails() -> None:
    """Tokens that two branches share are trained on once."""

    def node(parent: int | None, message: Any, ids: list[int], sampled: int = 0) -> Any:
        mask = [i >= len(ids) - sampled for i in range(len(ids))]
        return vf.MessageNode(parent=parent, message=message, sampled=bool(sampled), token_ids=ids, mask=mask, logprobs=[-0.5] * sampled)

    user, said = vf.UserMessage(content="Count."), vf.AssistantMessage(content="One.")
    call = vf.AssistantMessage(content="", tool_calls=[vf.ToolCall(id="c", name="add", arguments="{}")])
    answer = vf.ToolMessage(tool_call_id="c", content="2")
    nodes = [node(None, user, [1, 2]), node(0, call, [3, 4, 5], 2), node(1, answer, [6]), node(2, said, [7], 1)]
    nodes += [node(1, user, [8]), node(4, said, [9, 10], 1)]
    asked = task("branches")
    agent = vf.AgentInfo(config=vf.AgentConfig(runtime=vf.SubprocessConfig()))
    of = vf.TraceTask(type="Count", data=asked.data)
    trace = vf.Trace(task=of, agent=agent, nodes=nodes, is_completed=True, ok=True, stop_condition="max_turns")
    trace.record_reward("counted", 1.0, 0.5)

    def handed(*traces: Any, ok: bool = True, discarded: int = 0) -> rondo.Trajectory:
        record = dump(vf.Episode(task=trace.task, ok=ok, traces=list(traces)))
        return trajectory(Traced(WireEpisode.model_validate(unpack(pack(record))), [{}] * discarded, "", "x-1", 1), 3)

    given = handed(trace)
    assert [(m.role, list(m.token_ids), m.segment) for m in given.messages] == [
        *[("user", [1, 2], 0), ("assistant", [3, 4, 5], 0), ("tool", [6], 0), ("assistant", [7], 0)],
        *[("prompt", [1, 2, 3, 4, 5], 1), ("user", [8], 1), ("assistant", [9, 10], 1)],
    ], given.messages
    _, told = encode("run", "xg", "xg-0", "task", given)
    assert (told["sampled"], told["samples"], told["turns"], given.reward, given.stop_reason) == (4, 2, 3, 0.5, "max_turns"), told
    assert given.components == {"counted": 1.0} and given.policy_version == 3
    twin = trace.model_copy(update={"id": "twin"})
    assert "2 traces to train on" in handed(trace, twin).failure and handed(trace, twin).reward is None
    assert (handed(ok=False, discarded=2).failure_class, handed(trace, ok=False).failure_class) == ("discarded", "environment")


def checks() -> None:
    branches_are_samples_and_what_cannot_be_trained_on_fails()
    print("branches_are_samples_and_what_cannot_be_trained_on_fails ok", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tokenizer(folder / "model")
        live = Plane(binary(folder), folder / "plane")
        live.start()
        try:
            with engine(model) as url, server(folder) as (address, kept, _):
                for check in (
                    the_plane_is_killed,
                    a_lost_worker_is_no_lost_episode,
                    the_guide_s_lines_play,
                    what_the_server_discards_is_no_sample,
                ):
                    began = time.monotonic()
                    asyncio.run(check(live, address, kept, url, model))
                    print(f"{check.__name__} ok ({time.monotonic() - began:.0f} s)", flush=True)
        finally:
            live.stop()


if __name__ == "__main__":
    checks()
