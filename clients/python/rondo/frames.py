"""A run as tables: rondo.read."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from .client import AsyncClient
from .errors import NotFound
from .evidence import RecordedRollout, recorded
from .facts import Fact, Log, subject
from .loop import LoopThread
from .objects import Ref, Store, fetch

__all__ = ["RunTables", "read"]

T = TypeVar("T")

TIME = pa.timestamp("us", tz="UTC")

ROLLOUTS = pa.schema(
    {
        "rollout": pa.string(),
        "group": pa.string(),
        "task": pa.string(),
        "policy_version": pa.int64(),  # at dispatch
        "started_at": TIME,
        "ended_at": TIME,  # of the verdict or the failure
        "outcome": pa.string(),  # scored, failed or in_flight
        "reward": pa.float64(),
        "advantage": pa.float64(),
        "forfeit": pa.string(),
        "failed_stage": pa.string(),
        "failed_class": pa.string(),
        "stop_reason": pa.string(),
        "turns": pa.int64(),
        "tokens": pa.int64(),
        "sampled_tokens": pa.int64(),
        "invalidated": pa.bool_(),
        "step": pa.int64(),  # of the batch of the run's first feed that holds it
        "masked": pa.string(),  # why that batch does not train on it
        "marked": pa.bool_(),  # by a person
        "comment": pa.string(),  # the last one that a person gave
        "dropped": pa.string(),  # why the first feed dropped its group, or its trainer the rollout: stale or the name of a filter
    }
)

STEPS = pa.schema(
    {
        "feed": pa.string(),
        "step": pa.int64(),
        "ready_at": TIME,
        "consumed_at": TIME,  # for the first time
        "groups": pa.int64(),
        "samples": pa.int64(),
        "masked": pa.int64(),
        "tokens": pa.int64(),
        "sampled_tokens": pa.int64(),
        "reward_mean": pa.float64(),
        "min_version": pa.int64(),
        "staleness": pa.int64(),
        "logprob_gap_mean_abs": pa.float64(),
        "logprob_gap_max_abs": pa.float64(),
        "logprob_gap_kl": pa.float64(),
        "logprob_gap_tokens": pa.int64(),
    }
)

TURNS = pa.schema(
    {
        "rollout": pa.string(),
        "group": pa.string(),
        "task": pa.string(),
        "turn": pa.int64(),
        "policy_version": pa.int64(),
        "sampled_tokens": pa.int64(),
        "logprob_mean": pa.float64(),  # of the sampled tokens
        "tool_calls": pa.int64(),
        "finish_reason": pa.string(),
        "content": pa.string(),
    }
)

#: Seconds to wait for a plane, and for its first answer. Somebody sits in front of a notebook.
PATIENCE = 2.0

#: Names of runs and rollouts. Others would be patterns of subjects, or none.
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: What the tables are made of.
KINDS = (
    "rollout.started",
    "rollout.finished",
    "rollout.scored",
    "rollout.failed",
    "rollout.invalidated",
    "mark.recorded",
    "group.completed",
    "group.dropped",
    "batch.ready",
    "batch.consumed",
)


def read(
    run: str,
    *,
    dir: str | os.PathLike[str] | None = None,
    nats: str | None = None,
    store: str | None = None,
    creds: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    frames: str = "",
    timeout: float | None = 60.0,
) -> RunTables:
    """A run as it is recorded now, for notebooks: frames of its rollouts, turns and training steps.

        run = rondo.read("demo-1", dir="/srv/rondo")
        run.rollouts.group_by("task").agg(pl.col("reward").mean())

    run.rollout("g000001-0") is one rollout with its verdict, and with its changes as a diff.

    dir, nats, store, creds, ca, timeout: as for Client. A plane that cannot be reached is a ConnectError after 2 s.
    frames: polars, pandas or arrow. Default: polars, or pandas where only that is installed. ImportError where neither is. A run
    whose stream was deleted is not found: its archive is read by `rondo` alone.
    """
    chosen = frame_kind(frames)
    if not NAME.fullmatch(run):
        raise ValueError(f"run {run[:80]!r}: a name has 1 to 64 letters, digits, - and _; `rondo run list` lists the runs")

    def connect() -> AsyncClient:
        return AsyncClient(dir, nats=nats, store=store, creds=creds, ca=ca, wait=PATIENCE, timeout=timeout)

    return RunTables(run, connect, chosen)


def ask(connect: Callable[[], AsyncClient], work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
    """What a client answers that is there for this one question."""
    client = connect()
    loop = LoopThread(client.close)
    try:
        loop.run(client.open())
        return loop.run(work(client))
    finally:
        loop.stop()


class RunTables:
    """The tables of a run, made when they are first asked for. turns reads the trajectory of each finished rollout from the store."""

    def __init__(self, run: str, connect: Callable[[], AsyncClient], frames: str) -> None:
        self.run, self._connect, self._frames = run, connect, frames
        self._facts, self.feed, self._objects = ask(connect, lambda client: _facts(client, run))
        self._tables: dict[str, pa.Table] = {}

    def __repr__(self) -> str:
        return f"<run {self.run}: {len(self._facts['rollout.started'])} rollouts, {len(self._facts['batch.ready'])} batches>"

    @property
    def rollouts(self) -> Any:
        """One row for each rollout, in the order of their starts."""
        return self._frame("rollouts", lambda: rollouts(self._facts, self.feed))

    @property
    def steps(self) -> Any:
        """One row for each batch of each feed, in the order in which they were made."""
        return self._frame("steps", lambda: steps(self._facts))

    @property
    def turns(self) -> Any:
        """One row for each answer of the model in finished rollouts."""
        return self._frame("turns", lambda: turns(self._facts, self._objects))

    def rollout(self, id: str) -> RecordedRollout:
        """One rollout as it is recorded now, with its verdict and what it changed. NotFound where the run has none of that id.

        id: as the column rollout of `rollouts` has it, or as a harness's rondo.Rollout has it, behind the run's name.
        """
        id = id.removeprefix(self.run + ".")
        if not NAME.fullmatch(id):
            raise ValueError(f"rollout {id[:80]!r}: give an id such as g000003-1; the column rollout of `rollouts` has them")
        return ask(self._connect, lambda client: _rollout(client, self.run, id))

    def _frame(self, name: str, make: Any) -> Any:
        if name not in self._tables:
            self._tables[name] = make()
        table = self._tables[name]
        if self._frames == "polars":
            return importlib.import_module("polars").from_arrow(table)
        return table.to_pandas() if self._frames == "pandas" else table


def frame_kind(wanted: str) -> str:
    """The library whose frames are given."""
    if wanted not in ("", "polars", "pandas", "arrow"):
        raise ValueError(f"frames {wanted!r}: must be polars, pandas or arrow")
    if wanted == "arrow":
        return wanted
    for name in (wanted,) if wanted else ("polars", "pandas"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise ImportError(
        f"{wanted or 'neither polars nor pandas'} is {'not ' if wanted else ''}installed: "
        f'pip install {wanted or "polars"}, or ask for frames="arrow"'
    )


async def _facts(client: AsyncClient, run: str) -> tuple[dict[str, list[Fact]], str, Store]:
    try:
        config = await asyncio.wait_for(client.config(run), PATIENCE)
    except asyncio.TimeoutError:
        raise client.unreached() from None
    feeds = config.get("feeds") or [{"name": ""}]
    lists = await asyncio.gather(*(_all(client.log, run, subject(run, kind, "*")) for kind in KINDS))
    return dict(zip(KINDS, lists, strict=True)), str(feeds[0]["name"]), client.objects


async def _rollout(client: AsyncClient, run: str, id: str) -> RecordedRollout:
    facts = await _all(client.log, run, f"rondo.v1.{run}.rollout.{id}.>")
    if not facts:
        raise NotFound(f"run {run} has no rollout {id}: the column rollout of `rollouts` has those that it has")
    started = next((fact.data["task"] for fact in facts if fact.type == "rollout.started"), "")
    snapshot = await _snapshot(client, run, started)
    # A thread reads the store: its calls block, and the event loop must go on.
    return await asyncio.to_thread(recorded, run, id, facts, snapshot, client.objects)


async def _snapshot(client: AsyncClient, run: str, task: str) -> Any:
    """The snapshot of a task, which may be a query; None where the run has no such task, or the task no workspace."""
    tasks = {told["name"]: told.get("snapshot") for told in (await client.config(run)).get("tasks") or ()}
    if task in tasks or not NAME.fullmatch(task):
        return tasks.get(task)
    query = await client.log.last(run, subject(run, "query.submitted", task))
    if query is None:
        return None
    return (query.data.get("repository") or {}).get("archive") or tasks.get(query.data["task"])


async def _all(log: Log, run: str, where: str) -> list[Fact]:
    found, sequence = list[Fact](), 1
    while (fact := await log.next(run, where, sequence)) is not None:
        found.append(fact)
        sequence = fact.sequence + 1
    return found


def moment(fact: Fact) -> datetime:
    """When a fact was stated."""
    # Go writes nanoseconds, of which Python 3.10 reads three or six digits alone.
    whole, _, rest = fact.headers["ce-time"].rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(rest + '000000')[:6]}+00:00")


def rollouts(facts: Mapping[str, list[Fact]], feed: str) -> pa.Table:
    """The table of rollouts; feed is the one whose batches are named."""
    rows: dict[str, dict[str, Any]] = {}
    for fact in facts["rollout.started"]:
        told = fact.data
        rows.setdefault(
            fact.entity,
            {
                "rollout": fact.entity,
                "group": told["group"],
                "task": told["task"],
                "policy_version": told["policy_version"],
                "started_at": moment(fact),
                "outcome": "in_flight",
                "invalidated": False,
                "marked": False,
            },
        )
    for fact in facts["rollout.finished"]:
        told = fact.data
        update(
            rows, fact.entity, stop_reason=told["stop_reason"], turns=told["turns"], tokens=told["tokens"], sampled_tokens=told["sampled"]
        )
    for fact in facts["rollout.scored"]:
        forfeit = (fact.data.get("forfeit") or {}).get("class")
        update(rows, fact.entity, outcome="scored", ended_at=moment(fact), reward=fact.data["reward"], forfeit=forfeit)
    for fact in facts["rollout.failed"]:
        update(rows, fact.entity, outcome="failed", ended_at=moment(fact), failed_stage=fact.data["stage"], failed_class=fact.data["class"])
    for fact in facts["rollout.invalidated"]:
        update(rows, fact.entity, invalidated=True)
    for fact in facts["mark.recorded"]:
        comment = {"comment": fact.data["text"]} if fact.data.get("text") else {}
        update(rows, fact.entity, marked=fact.data["marked"], **comment)
    for fact in facts["group.completed"]:
        for member in fact.data["members"]:
            if not member.get("failed"):
                update(rows, member["rollout"], advantage=member["advantage"])
    members: dict[str, list[str]] = {}
    for name, row in rows.items():
        members.setdefault(row["group"], []).append(name)
    for fact in facts["group.dropped"]:
        if fact.data["feed"] == feed:
            for name in members.get(fact.entity, ()):
                update(rows, name, dropped=fact.data.get("filter") or fact.data["reason"])
    for fact in facts["batch.ready"]:
        if fact.entity == feed:
            for name in fact.data["rollouts"]:
                update(rows, name, step=fact.data["step"], dropped=None)
            for name, why in (fact.data.get("masked") or {}).items():
                update(rows, name, masked=why, dropped=None)
    for fact in facts["batch.consumed"]:
        if fact.entity == feed:
            for name in fact.data.get("stale") or ():
                update(rows, name, dropped="stale")
    return pa.Table.from_pylist(list(rows.values()), ROLLOUTS)


def update(rows: Mapping[str, dict[str, Any]], name: str, **values: Any) -> None:
    """Set columns of a rollout that was started."""
    if name in rows:
        rows[name].update(values)


def steps(facts: Mapping[str, list[Fact]]) -> pa.Table:
    """The table of batches."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for fact in facts["batch.ready"]:
        told = fact.data
        rows[fact.entity, told["step"]] = {
            "feed": fact.entity,
            "step": told["step"],
            "ready_at": moment(fact),
            "groups": len(told["groups"]),
            "samples": told["samples"],
            "masked": len(told.get("masked") or {}),
            "tokens": told["tokens"],
            "sampled_tokens": told["sampled"],
            "reward_mean": told["reward_mean"],
            "min_version": told["min_version"],
            "staleness": told["staleness"],
        }
    for fact in facts["batch.consumed"]:
        row = rows.get((fact.entity, fact.data["step"]))
        if row is None:
            continue
        row.setdefault("consumed_at", moment(fact))
        for name, value in (fact.data.get("logprob_gap") or {}).items():  # the last statement holds
            row[f"logprob_gap_{name}"] = value
    return pa.Table.from_pylist(list(rows.values()), STEPS)


def turns(facts: Mapping[str, list[Fact]], objects: Store) -> pa.Table:
    """The table of turns, from the trajectory files."""
    refs = [Ref.parse(fact.data["trajectory"]) for fact in facts["rollout.finished"]]
    with ThreadPoolExecutor(8) as pool:
        tables = pool.map(lambda ref: turns_of(fetch(objects, ref)), refs)
        return pa.concat_tables([TURNS.empty_table(), *tables])


def turns_of(file: bytes) -> pa.Table:
    """The turns of one trajectory file."""
    table = pa.ipc.open_file(file).read_all()
    rows = []
    for row in table.to_pylist():
        if row["role"] != "assistant":
            continue
        own = [logprob for logprob, sampled in zip(row["logprobs"], row["loss_mask"], strict=True) if sampled]
        rows.append(
            {
                "rollout": row["rollout_id"],
                "group": row["group_id"],
                "task": row["task"],
                "turn": row["turn"],
                "policy_version": row["policy_version"],
                "sampled_tokens": len(own),
                "logprob_mean": sum(own) / len(own) if own else None,
                "tool_calls": len(json.loads(row["tool_calls"] or "[]")),
                "finish_reason": row["finish_reason"],
                "content": row["content"],
            }
        )
    return pa.Table.from_pylist(rows, TURNS)
