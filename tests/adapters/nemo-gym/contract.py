"""rondo.nemo_gym against NeMo Gym itself: its conformance suite, its capture path and its builder; clients and the plane are killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nemo_gym.token_id_capture import (
    CaptureContext,
    ParentResolutionStatus,
    TokenEntry,
    TokenIdCaptureConfig,
    TokenSink,
    TokenSource,
    capture_tokens,
    register_call_intent,
    reset_token_sink,
    resolve_parent,
    set_token_sink,
    stamp_lineage,
    trajectories_from_source,
)
from nemo_gym.token_id_capture.config import TokenIdCaptureSettings
from nemo_gym.token_id_capture.conformance import run_conformance

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs/guide/nemo-gym.md"
sys.path.insert(0, str(ROOT / "clients/python"))

import played

import rondo
from rondo.captures import Captures
from rondo.nemo_gym import Lineage, Sink, Source, trajectory
from tests.conftest import Plane

CHECKS = [
    "put_then_freeze_visibility",
    "idempotent_reput",
    "conflicting_reput",
    "mark_incomplete_durability",
    "freeze_idempotency",
    "post_freeze_write_safety",
    "conditional_retirement",
    "lineage_visibility",
    "fresh_client_lineage_visibility",
    "begin_call_custody",
]

#: Calls of a rollout that is killed, and how often that happens to one.
CALLS, KILLS = 8, int(os.environ.get("RONDO_KILLS", "20"))

FORK = multiprocessing.get_context("fork")


def run_of(plane: Plane, **changes: Any) -> str:
    with rondo.Client(plane.dir, wait=60) as client:
        return plane.open_run(client, **changes)


def gyms_own_suite_passes(plane: Plane) -> None:
    options: dict[str, Any] = {"run": run_of(plane), "dir": plane.dir}
    passed = asyncio.run(run_conformance(lambda: Sink(**options), lambda: Source(**options), lambda: Lineage(**options)))
    assert passed == CHECKS, passed
    print(f"  {len(passed)} of {len(CHECKS)} checks", flush=True)


def gyms_configuration_takes_the_classes(plane: Plane) -> None:
    names = {"run": run_of(plane), "dir": str(plane.dir)}
    block = {
        "enabled": True,
        "sink": "rondo.nemo_gym:Sink",
        "sink_kwargs": names,
        "lineage_store": "rondo.nemo_gym:Lineage",
        "lineage_store_kwargs": names,
        "rebuild_response": False,
        "delta_records": True,
    }
    config = TokenIdCaptureConfig.model_validate({"token_id_capture": block})
    sink: Any
    if sys.version_info >= (3, 12):
        sink, lineage = config.build_sink(), config.build_lineage_store()
    else:  # Gym looks for the methods in an attribute that protocols do not have before
        sink, lineage = Sink(**config.token_id_capture.sink_kwargs), Lineage(**config.token_id_capture.lineage_store_kwargs)
    assert isinstance(sink, TokenSink) and sink is not None and lineage is not None and lineage.is_process_shared()
    asyncio.run(_served_rollout(names, sink, lineage))


async def _served_rollout(names: dict[str, Any], sink: Any, lineage: Any) -> None:
    """What a model server of Gym's does for two calls, of which the second continues the first, and what is built of them."""
    answered: list[dict[str, Any]] = [{"role": "user", "content": "What is 2 + 2?"}]
    tokens = [5, 6, 7]
    for call, (text, sampled) in enumerate([("I add.", [11, 12]), ("Four.", [13])]):
        context = CaptureContext("task.0-a1", f"call-{call}", sink, lineage, delta_records=True)
        token = set_token_sink(context)
        try:
            await resolve_parent(answered)
            await register_call_intent()
            said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            logprobs = [-0.125 * (i + 1) for i in range(len(sampled))]
            carried = {"prompt_token_ids": list(tokens), "generation_token_ids": sampled, "generation_log_probs": logprobs}
            await capture_tokens({"id": f"resp-{call}", "output": [{**said, **carried}]}, answered)
        finally:
            reset_token_sink(token)
        assert context.committed
        tokens += [*sampled, 20 + call]
        answered += [said, {"role": "user", "content": "Go on."}]
    source = Source(**names)
    assert isinstance(source, TokenSource)
    snapshot = await source.freeze("task.0-a1")
    assert [e.parent_resolution for e in snapshot.entries] == [ParentResolutionStatus.ROOT, ParentResolutionStatus.RESOLVED]
    # The second is a delta: its parent was found through the log.
    assert [e.prompt_token_ids for e in snapshot.entries] == [[5, 6, 7], [20]]
    built = await trajectories_from_source("task.0-a1", source, declared_response_id="resp-1")
    assert built is not None and not built["mask_sample"], built
    given = trajectory(built["rebuilt_response"], 1.0)
    assert [m.content for m in given.messages] == ["", "I add.", "", "Four."]
    assert [t for m in given.messages for t in m.token_ids] == [5, 6, 7, 11, 12, 20, 13]
    for thing in (sink, lineage, source):
        await thing.close()
        await thing.close()


def entry(rollout: str, call: int) -> TokenEntry:
    """The same bytes in every process, as Gym wants of who puts again. Each call extends the one before it."""
    prompt = [100 + t for t in range(3 * call + 2)]
    made = TokenEntry(
        rollout_id=rollout,
        model_call_id=f"call-{call}",
        prompt_token_ids=prompt,
        generation_token_ids=[prompt[-1] + 1, prompt[-1] + 2],
        generation_log_probs=[-0.1 - call / 3, -1e-7],
        output_items=[{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Ü {call}"}]}],
        token_item_index=0,
        created_at=1.7e9 + call,
    )
    parent = f"call-{call - 1}" if call else None
    status = ParentResolutionStatus.RESOLVED if call else ParentResolutionStatus.ROOT
    return stamp_lineage(made, parent, parent_resolution=status)


def serve(options: dict[str, Any], rollout: str, said: Any) -> None:
    """A model server: it says what it has put, as its answer to the harness would."""

    async def work() -> None:
        sink = Sink(**options)
        for call in range(CALLS):
            await sink.begin_call(rollout, f"call-{call}")
            said.send(("begun", call))
            await sink.put(entry(rollout, call))
            said.send(("put", call))
        await sink.close()

    asyncio.run(work())


def killed(options: dict[str, Any], rollout: str, after: int, delay: float) -> set[int]:
    """The calls that a server had put when it was killed: so many messages and moments after its start."""
    here, there = FORK.Pipe(duplex=False)
    process = FORK.Process(target=serve, args=(options, rollout, there))
    process.start()
    there.close()
    put = set()
    try:
        for _ in range(after):
            what, call = here.recv()
            put |= {call} if what == "put" else set()
        time.sleep(delay)  # the kill comes somewhere in the next call
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        while True:
            what, call = here.recv()
            put |= {call} if what == "put" else set()
    except EOFError:
        process.join()
        return put


def servers_are_killed_between_put_and_freeze(plane: Plane) -> None:
    options: dict[str, Any] = {"run": run_of(plane), "dir": plane.dir}
    dangling = unanswered = 0
    for n in range(KILLS):
        rollout = f"killed-{n}"
        put = killed(options, rollout, after=1 + n % (2 * CALLS), delay=0.0007 * (n % 7))
        there, incomplete, last = asyncio.run(frozen(options, rollout))
        begun = {call for type, call in facts(options, rollout, last) if type == "capture.begun"}  # what is under way may come later
        assert put <= there, f"{rollout}: {put} were put, and {there} are there"
        assert incomplete == (begun != there), f"{rollout}: {begun} have begun, {there} are there, incomplete: {incomplete}"
        dangling, unanswered = dangling + incomplete, unanswered + (there != put)
        assert killed(options, rollout, after=2 * CALLS, delay=0) == set(range(CALLS))  # another server puts all of it again
        assert asyncio.run(frozen(options, rollout))[:2] == (set(range(CALLS)), False)
        all_facts = facts(options, rollout)
        assert len(all_facts) == len(set(all_facts)) == 2 * CALLS, f"{rollout}: a call is there twice: {all_facts}"
    print(f"  {KILLS} kills: {dangling} left a call that had begun, {unanswered} came between a record and its answer", flush=True)


async def frozen(options: dict[str, Any], rollout: str) -> tuple[set[int], bool, int]:
    """The calls of a snapshot, each of which is what was put, whether it is incomplete, and its version."""
    source = Source(**options)
    try:
        snapshot = await source.freeze(rollout)
    finally:
        await source.close()
    calls = set()
    for found in snapshot.entries:
        call = int(found.model_call_id.removeprefix("call-"))
        assert found.model_dump(mode="json") == entry(rollout, call).model_dump(mode="json")
        calls.add(call)
    return calls, snapshot.incomplete, snapshot.version


def facts(options: dict[str, Any], rollout: str, last: int = sys.maxsize) -> list[tuple[str, int]]:
    """The facts of a capture up to a sequence: their types, and the calls that they are about."""
    with rondo.Client(options["dir"], wait=60) as client:
        found = Captures(client, options["run"]).facts(rollout)
        return [(fact.type, int(fact.data["call"].removeprefix("call-"))) for fact in found if fact.sequence <= last]


def the_plane_is_killed_between_put_and_freeze(plane: Plane) -> None:
    options: dict[str, Any] = {"run": run_of(plane), "dir": plane.dir}
    for after in (1, 6, 9):
        here, there = FORK.Pipe(duplex=False)
        process = FORK.Process(target=serve, args=(options, f"outage-{after}", there))
        process.start()
        there.close()
        for _ in range(after):
            here.recv()
        plane.kill()
        plane.start()
        process.join(60)
        assert process.exitcode == 0, "the server did not get over the outage"
        assert asyncio.run(frozen(options, f"outage-{after}"))[:2] == (set(range(CALLS)), False)
        assert len(facts(options, f"outage-{after}")) == 2 * CALLS


async def begin(options: dict[str, Any], rollout: str) -> None:
    """A call that is made, and of which nobody hears again."""
    sink = Sink(**options)
    await sink.begin_call(rollout, "call-99")
    await sink.close()


def a_trainer_gets_it_once(plane: Plane) -> None:
    """The guide's lines, by a process that is killed before it retires, and by another."""
    run = run_of(plane, feeds=[{"name": "trainer", "groups_per_batch": 1}], group_size=3)
    options: dict[str, Any] = {"run": run, "dir": plane.dir}
    for member in range(2):
        assert len(killed(options, f"r{member}", after=2 * CALLS, delay=0)) == CALLS
    assert len(killed(options, "r2", after=2 * CALLS, delay=0)) == CALLS
    asyncio.run(begin(options, "r2"))
    [code] = [block for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "from rondo.nemo_gym" in block]
    lines: dict[str, Any] = {}
    exec(code.replace('"gym"', repr(run)), lines)

    def work(die: bool) -> None:
        async def whole() -> None:
            source = Source(**options)
            if die:
                source.drop = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,method-assign,return-value]
            async with rondo.AsyncClient(plane.dir, wait=60) as client:
                for member in range(3):
                    await lines["hand_in"](client, source, f"r{member}", float(member), group="g1", member=member, size=3, task="sum")
            await source.close()

        asyncio.run(whole())

    dying = FORK.Process(target=work, args=(True,))
    dying.start()
    dying.join(60)
    assert dying.exitcode == -signal.SIGKILL, dying.exitcode
    work(False)
    with rondo.Feed(run, "trainer", dir=plane.dir, timeout=30) as feed:
        batch = next(feed)
        assert batch["rollout_id"].tolist() == ["xg1-0", "xg1-1"]  # the third one is incomplete, and no reward of 0
        last = entry("r0", CALLS - 1)
        assert batch.tokens.row(0).tolist() == last.prompt_token_ids + last.generation_token_ids
        sampled = batch.loss_mask.row(0).tolist()
        logprobs = [lp for call in range(CALLS) for lp in entry("r0", call).generation_log_probs]
        got = batch.sampler_logprobs.row(0)[batch.loss_mask.row(0)].tolist()
        assert sum(sampled) == 2 * CALLS and all(abs(a - b) < 1e-6 for a, b in zip(got, logprobs, strict=True))
    try:
        asyncio.run(frozen(options, "r0"))
    except rondo.Failed as over:
        assert "is retired" in str(over)
    else:
        raise AssertionError("what was handed on and retired can be frozen again")
    plane.command("audit", run)


def the_guide_s_lines_are_gyms(plane: Plane) -> None:
    """The configuration of the guide is one that Gym takes."""
    [block] = re.findall(r"```yaml\n(token_id_capture:.*?)```", GUIDE.read_text(), re.DOTALL)
    assert "rondo.nemo_gym:Sink" in block and "rondo.nemo_gym:Lineage" in block
    names = {line.split(":")[0].strip() for line in block.splitlines()[1:]}
    assert names <= set(TokenIdCaptureSettings.model_fields), names


def binary(folder: Path) -> str:
    """The program rondo."""
    if given := os.environ.get("RONDO_BINARY"):
        return given
    if shutil.which("go") is None:
        sys.exit("there is no go command to build rondo with, and no RONDO_BINARY")
    subprocess.run(["go", "build", "-o", str(folder / "rondo"), "./cmd/rondo"], cwd=ROOT, check=True)
    return str(folder / "rondo")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        live = Plane(binary(Path(name)), Path(name, "plane"))
        live.start()
        try:
            for check in (
                gyms_own_suite_passes,
                gyms_configuration_takes_the_classes,
                servers_are_killed_between_put_and_freeze,
                the_plane_is_killed_between_put_and_freeze,
                a_trainer_gets_it_once,
                the_guide_s_lines_are_gyms,
            ):
                check(live)
                print(f"{check.__name__} ok", flush=True)
            played.check(live)
        finally:
            live.stop()


if __name__ == "__main__":
    main()
