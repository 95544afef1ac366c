"""rondo.read: a run as frames."""

from __future__ import annotations

import importlib.util
import socket
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rondo
from rondo import frames
from rondo.facts import Fact

from .conftest import Plane, bring, missing


@pytest.fixture(scope="module")
def run(plane: Plane) -> str:
    """A run with two steps, of which the trainer has taken one, and a rollout that failed."""
    with rondo.Client(plane.dir, wait=60) as client:
        name = plane.open_run(client)
        bring(client, name, 1, 2)
        with rondo.Feed(name, "trainer", client=client, timeout=60) as feed:
            batch = next(feed)
            feed.consumed(batch, logprob_gap=rondo.LogprobGap(mean_abs=0.25, max_abs=1.0, kl=0.5, tokens=3))
            feed.publish_weights({"w": np.zeros(3)}, version=1, through_step=1)
            bring(client, name, 3, 2)
            next(feed)
        client.invalidate(name, "xg3-0", "it cheated")
        client.mark(name, "xg3-0", "look at turn 0")
        client.mark(name, "xg3-1", "not odd")
        client.mark(name, "xg3-1", marked=False)
    return name


def table(value: Any) -> pa.Table:
    assert isinstance(value, pa.Table)
    return value


def test_the_tables_of_a_run(plane: Plane, run: str) -> None:
    told = rondo.read(run, dir=plane.dir, frames="arrow")
    assert "8 rollouts, 2 batches" in repr(told)
    rollouts = sorted(table(told.rollouts).to_pylist(), key=lambda row: str(row["rollout"]))  # those of a group start at once
    assert len(rollouts) == 8 and {row["outcome"] for row in rollouts} == {"scored"} and {row["task"] for row in rollouts} == {"mend"}
    assert [row["reward"] for row in rollouts] == [0, 1] * 4
    assert [row["advantage"] for row in rollouts] == [-0.5, 0.5] * 4
    assert [row["step"] for row in rollouts] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert all(row["turns"] == 2 and row["sampled_tokens"] == 6 and row["tokens"] == 14 for row in rollouts)
    assert [row["invalidated"] for row in rollouts].count(True) == 1
    assert [(row["marked"], row["comment"]) for row in rollouts[4:6]] == [(True, "look at turn 0"), (False, "not odd")]
    assert not any(row["marked"] or row["comment"] for row in rollouts[:4] + rollouts[6:])
    assert all(row["started_at"] <= row["ended_at"] <= datetime.now(timezone.utc) for row in rollouts)

    steps = table(told.steps).to_pylist()
    assert [(row["feed"], row["step"], row["groups"], row["samples"], row["reward_mean"]) for row in steps] == [
        ("trainer", 1, 2, 4, 0.5),
        ("trainer", 2, 2, 4, 0.5),
    ]
    assert (
        steps[0]["consumed_at"] > steps[0]["ready_at"] and steps[0]["logprob_gap_mean_abs"] == 0.25 and steps[0]["logprob_gap_tokens"] == 3
    )
    assert steps[1]["consumed_at"] is None and steps[1]["logprob_gap_kl"] is None

    turns = sorted(table(told.turns).to_pylist(), key=lambda row: (str(row["rollout"]), int(row["turn"])))
    assert [row["turn"] for row in turns] == [0, 1] * 8
    assert [row["sampled_tokens"] for row in turns] == [4, 2] * 8 and [row["tool_calls"] for row in turns] == [1, 0] * 8
    assert turns[1]["content"] == "Done." and turns[1]["logprob_mean"] < 0


def test_the_conversation_of_a_rollout(plane: Plane, run: str) -> None:
    """A harness brought it, and what it said is read as it said it."""
    rollout = rondo.read(run, dir=plane.dir, frames="arrow").rollout("xg1-1")
    said = rollout.conversation()
    assert [(m.role, m.turn) for m in said] == [("system", 0), ("user", 0), ("assistant", 0), ("tool", 0), ("assistant", 1)]
    assert said[4].content == "Done." and said[2].tool_calls and said[3].tool_call_id == said[2].tool_calls[0]["id"]
    assert [len(m.token_ids) for m in said] == [len(m.logprobs or ()) for m in said] and sum(sum(m.loss_mask or ()) for m in said) == 6
    assert said[2].thoughts == "" and (said[2].policy_version or 0) >= 0


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_frames_of_each_library(plane: Plane, run: str, kind: str) -> None:
    if importlib.util.find_spec(kind) is None:
        missing(f"{kind} is not installed")
    told = rondo.read(run, dir=plane.dir, frames=kind)
    for frame, rows in ((told.rollouts, 8), (told.steps, 2), (told.turns, 16)):
        assert type(frame).__module__.startswith(kind) and len(frame) == rows
    assert told.rollouts["reward"].mean() == 0.5


def test_without_a_library_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match='pip install polars, or ask for frames="arrow"'):
        frames.frame_kind("")
    with pytest.raises(ImportError, match="pandas is not installed"):
        frames.frame_kind("pandas")
    assert frames.frame_kind("arrow") == "arrow"
    with pytest.raises(ValueError, match="polars, pandas or arrow"):
        frames.frame_kind("dask")


def test_a_plane_that_is_not_there_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PATIENCE", 0.1)
    errors: list[str] = []

    def read(**address: str) -> None:
        with pytest.raises(rondo.ConnectError) as caught:
            rondo.read("mine", frames="arrow", timeout=None, **address)
        errors.append(str(caught.value))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        for address in ({"dir": str(tmp_path)}, {"nats": url, "store": str(tmp_path)}):
            reader = threading.Thread(target=read, kwargs=address, daemon=True)
            reader.start()
            reader.join(60)
    assert errors == [
        f"no plane runs in {tmp_path}: start one with `rondo up --dir {tmp_path}`",
        f"NATS at {url} gives no answer: start a plane there, or give the address of one by nats= or RONDO_NATS",
    ]


def test_a_server_that_is_no_plane_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server of NATS without JetStream accepts the connection, and then nobody answers."""
    monkeypatch.setattr(frames, "PATIENCE", 1.0)

    def serve(link: socket.socket) -> None:
        link.sendall(b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"headers":true}\r\n')
        with link, link.makefile("rb") as said:
            for line in said:
                if line.startswith(b"PING"):
                    link.sendall(b"PONG\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: serve(server.accept()[0]), daemon=True).start()
        url = f"nats://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(rondo.ConnectError, match=f"NATS at {url} gives no answer: start a plane there"):
            rondo.read("mine", nats=url, store=str(tmp_path), frames="arrow", timeout=None)


def test_a_run_that_is_not_there(plane: Plane) -> None:
    with pytest.raises(rondo.NotFound, match="there is no run"):
        rondo.read("nowhere", dir=plane.dir, frames="arrow")


def fact(kind: str, entity: str, **data: Any) -> Fact:
    return Fact(1, kind, entity, {"ce-time": "2026-11-26T10:00:00.123456789Z"}, data)


def test_what_became_of_rollouts() -> None:
    facts: dict[str, list[Fact]] = {kind: [] for kind in frames.KINDS}
    for member in range(4):
        facts["rollout.started"].append(fact("rollout.started", f"g1-{member}", group="g1", task="t", policy_version=3))
    facts["rollout.started"].append(fact("rollout.started", "g2-0", group="g2", task="t", policy_version=3))
    facts["rollout.failed"].append(fact("rollout.failed", "g1-1", stage="tools", **{"class": "sandbox"}))
    facts["rollout.scored"].append(fact("rollout.scored", "g1-2", reward=0, forfeit={"class": "tampered"}))
    facts["rollout.scored"].append(fact("rollout.scored", "g2-0", reward=1))
    facts["group.dropped"] += [
        fact("group.dropped", "g2", feed="trainer", reason="stale"),
        fact("group.dropped", "g1", feed="other", reason="stale"),
    ]
    facts["batch.ready"].append(fact("batch.ready", "trainer", rollouts=["g1-0"], masked={"g1-2": "forfeit"}, step=1))
    rows = {row["rollout"]: row for row in frames.rollouts(facts, "trainer").to_pylist()}
    assert [row["outcome"] for row in rows.values()] == ["in_flight", "failed", "scored", "in_flight", "scored"]
    assert (rows["g1-1"]["failed_stage"], rows["g1-1"]["failed_class"]) == ("tools", "sandbox")
    assert (rows["g1-2"]["forfeit"], rows["g1-2"]["masked"], rows["g1-2"]["step"]) == ("tampered", "forfeit", None)
    assert rows["g1-0"]["step"] == 1 and rows["g1-0"]["dropped"] is None
    assert rows["g2-0"]["dropped"] == "stale"
    for feed in ("trainer", "other"):
        facts["batch.consumed"].append(fact("batch.consumed", feed, step=1, stale=["g1-0"] if feed == "trainer" else ["g1-3"]))
    rows = {row["rollout"]: row for row in frames.rollouts(facts, "trainer").to_pylist()}
    assert (rows["g1-0"]["dropped"], rows["g1-0"]["step"]) == ("stale", 1) and rows["g1-3"]["dropped"] is None
    assert rows["g1-0"]["started_at"].microsecond == 123456
