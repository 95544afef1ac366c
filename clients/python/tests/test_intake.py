"""Facts at the intake of a live plane."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import rondo
from rondo import outside
from rondo.outside import time_of

from .conftest import Plane, bring, conversation


def test_one_id_is_one_fact(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    first = client.state(run, "run.paused", run, {"reason": "noon"}, id="pause-1")
    assert client.state(run, "run.paused", run, {"reason": "noon"}, id="pause-1") == first
    assert client.resume(run).sequence > first.sequence
    assert client.pause(run, "night").sequence > client.state(run, "run.paused", run, {"reason": "noon"}, id="pause-1").sequence
    with pytest.raises(rondo.IntakeError, match="was used for another"):
        client.state(run, "run.paused", run, {"reason": "midnight"}, id="pause-1")


def test_what_the_intake_refuses_it_says(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    refused: list[tuple[str, str, str, dict[str, Any], str]] = [
        (run, "batch.consumed", "trainer", {"step": 7}, "has only reached step 0"),
        (run, "batch.consumed", "trainer", {"step": "x"}, "step"),
        (run, "batch.ready", "trainer", {}, "only Rondo's own services"),
        ("nothing", "batch.consumed", "trainer", {"step": 1}, "there is no run"),
        (run, "rollout.invalidated", "g000001-0", {"reason": "x"}, "has no rollout"),
        (run, "no.such", "thing", {}, "unknown event type"),
    ]
    for where, type, entity, data, why in refused:
        with pytest.raises(rondo.IntakeError, match=why):
            client.state(where, type, entity, data)


@pytest.mark.parametrize(
    ("run", "type", "entity", "data"),
    [
        ("a.b", "run.paused", "a", {}),
        ("a", "paused", "a", {}),
        ("a", "run.paused", "a b", {}),
        ("a", "run.paused", "x" * 65, {}),
        ("a", "run.paused", "a", {"reward": float("nan")}),
    ],
)
def test_what_never_reaches_the_intake(client: rondo.Client, run: str, type: str, entity: str, data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"event type|use letters|Out of range"):
        client.state(run, type, entity, data)


def test_a_large_body_travels_as_a_reference(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    config = client.config(run)
    digest = "ab" * 32
    task = {"snapshot": {"ref": "blobs/x", "sha256": digest, "size": 1}, "instruction": "y" * 1000}
    before = set((plane.dir / "objects/blobs").rglob("*"))
    with pytest.raises(rondo.IntakeError):  # these tasks are not valid; what matters is that the body was read
        client.state("large", "run.opened", "large", {"config": {**config, "tasks": [{"name": f"t{i}", **task} for i in range(200)]}})
    assert any(p.is_file() and p.stat().st_size > 128 << 10 for p in set((plane.dir / "objects/blobs").rglob("*")) - before)


def test_remarks_and_invalidations_reach_the_batch(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 1}])
    bring(client, run, 1, 1)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        feed.consumed(next(feed))
        size = 3
        trajectories = [rondo.Message("user", "Mend it.", [1, 2]), rondo.Message("assistant", "Done.", [3, 4], [-0.5, -0.25])]
        for member in range(size - 1):
            client.publish_trajectory(
                run,
                group="late",
                member=member,
                size=size,
                task="mend",
                messages=trajectories,
                reward=float(member),
                components={"tests": 0.5},
            )
        client.annotate(run, "xlate-1", turn=0, start=1, length=1, reward=0.5, text="too late", values={"lag": 2.0})
        client.invalidate(run, "xlate-0", "it saw the answer")
        why = {"failure": "out of disk", "failure_class": "storage"}
        client.publish_trajectory(run, group="late", member=2, size=size, task="mend", messages=[], **why)  # type: ignore[arg-type]
        failed = client.loop.run(client.asynchronous.log.last(run, f"rondo.v1.{run}.rollout.xlate-2.failed"))
        assert failed is not None and (failed.data["class"], failed.data["message"]) == ("storage", "out of disk")
        batch = next(feed)
    assert batch["rollout_id"].tolist() == ["xlate-1"]
    assert batch.ready["masked"] == {"xlate-0": "invalidated"}
    assert batch["reward_components"].tolist() == ['{"tests":0.5}']
    assert '"text":"too late"' in batch["annotations"][0]


def test_feedback_is_the_reward_where_nobody_verifies(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 1}], features=["feedback_rewards"])
    messages: list[Any] = [
        {"role": "user", "content": "?", "token_ids": [1]},
        {"role": "assistant", "content": "!", "token_ids": [2], "logprobs": [-1]},
    ]
    ids = [client.publish_trajectory(run, group="asked", member=i, size=3, task="chat", messages=messages) for i in range(3)]
    assert client.trajectory(run, ids[0]).num_rows == len(messages)  # users judge what they were shown
    with pytest.raises(rondo.NotFound, match="has not finished"):
        client.trajectory(run, "xasked-3")
    client.record_feedback(run, ids[0], "accept")
    client.record_feedback(run, ids[1], "follow_up", text="and now?")
    client.record_feedback(run, ids[1], "reject")
    client.record_feedback(run, ids[2], "follow_up", reward=0.25, text="not quite")
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        assert next(feed).rewards.tolist() == [1, 0, 0.25]
    with pytest.raises(rondo.IntakeError, match="a score needs one"):
        client.record_feedback(run, ids[2], "score")


@pytest.mark.parametrize(("given", "seconds"), [(None, 1800), (90.5, 90.5)])
def test_rollouts_have_time_until_their_outcome(client: rondo.Client, plane: Plane, given: float | None, seconds: float) -> None:
    run = plane.open_run(client, limits={"turns": 32, "tokens": 131072, "timeout": "30m", "tries": 5})
    began = datetime.now(timezone.utc)
    (group,) = client.publish_group(run, group="g", task="mend", trajectories=[rondo.Trajectory(messages=conversation(1))], deadline=given)
    member = {"size": 1, "task": "mend", "messages": conversation(1)}
    single = client.publish_trajectory(run, group="h", member=0, deadline=given, **member)  # type: ignore[arg-type]
    ended = datetime.now(timezone.utc)
    facts = plane.command("events", "tail", run, "--type", "rollout.started", "--json").splitlines()
    deadlines = {fact["entity"]: datetime.fromisoformat(fact["data"]["deadline"].replace("Z", "+00:00")) for fact in map(json.loads, facts)}
    assert sorted(deadlines) == [group, single]
    for deadline in deadlines.values():
        assert began <= deadline - timedelta(seconds=seconds) <= ended
    with pytest.raises(rondo.IntakeError, match=r"within limits\.timeout of the run"):
        client.publish_trajectory(run, group="i", member=0, deadline=3600, **member)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="deadline 0: want a number of seconds"):
        client.publish_trajectory(run, group="i", member=0, deadline=0, **member)  # type: ignore[arg-type]


def test_a_rollout_that_another_process_hands_in_meanwhile_is_handed_in_once(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    group = client.publish_group(
        run, group="g", task="mend", trajectories=[rondo.Trajectory(conversation(i), reward=1.0) for i in range(2)]
    )
    opened = client.asynchronous._opened_plane

    def again(member: int, trajectory: rondo.Trajectory, size: int = 2) -> list[str]:
        return client.loop.run(outside.hand_in(opened, run, outside.Group("g", "mend", size), {member: trajectory}, 300))

    assert [again(i, rondo.Trajectory(conversation(i), reward=1.0)) for i in range(2)] == [[rollout] for rollout in group]
    assert not letters(plane, run)
    with pytest.raises(rondo.IntakeError, match="was stated before with reward 1.0, not 0.5"):
        again(0, rondo.Trajectory(conversation(0), reward=0.5))
    with pytest.raises(rondo.IntakeError, match="was stated before with trajectory"):
        again(0, rondo.Trajectory(conversation(7), reward=1.0))
    with pytest.raises(rondo.IntakeError, match="was stated before with size 2, not 3"):
        again(0, rondo.Trajectory(conversation(0), reward=1.0), size=3)
    assert facts_of(plane, run, group) == sorted(["rollout.started", "rollout.finished", "rollout.scored"] * 2)
    with pytest.raises(rondo.IntakeError, match="member 9"):  # a refusal of what is not there is the intake's
        again(9, rondo.Trajectory(conversation(9), reward=1.0))


def test_the_good_rollouts_of_a_group_are_handed_in(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    good, late = rondo.Trajectory(conversation(0), reward=1.0), rondo.Trajectory(conversation(1), reward=1.0, policy_version=7)
    with pytest.raises(rondo.IntakeError, match="has only reached version 0"):
        client.publish_group(run, group="g", task="mend", trajectories=[good, late])
    assert facts_of(plane, run, ["xg-0", "xg-1"]) == sorted(["rollout.started", "rollout.finished", "rollout.scored"])
    assert any("version 7" in letter for letter in letters(plane, run))


def facts_of(plane: Plane, run: str, rollouts: Collection[str]) -> list[str]:
    told = plane.command("events", "tail", run, "--json").splitlines()
    return sorted(fact["type"] for fact in map(json.loads, told) if fact["entity"] in rollouts)


def letters(plane: Plane, run: str) -> list[str]:
    """Why submissions about a run were refused."""
    told = plane.command("events", "tail", "_", "--type", "log.dead_lettered", "--json").splitlines()
    refused = [fact["data"] for fact in map(json.loads, told)]
    return [letter["reason"] for letter in refused if letter["subject"].startswith(f"rondo.in.{run}.")]


def test_durations_of_runs() -> None:
    given = {"1h30m0s": 5400, "10m": 600, "1m30.5s": 90.5, "250ms": 0.25, "1µs": 1e-6}
    assert {text: time_of({"limits": {"timeout": text}}, None) for text in given} == given


@pytest.mark.parametrize(("session", "share"), [("", 0.8894), ("s1", 0.9091), ("anna", 0.3334), ("42", 0.4503), ("сессия-7", 0.4620)])
def test_sessions_are_sampled_as_the_intake_does(session: str, share: float) -> None:
    assert not rondo.sampled(session, share - 0.0002)
    assert rondo.sampled(session, share + 0.0002)


def test_only_users_who_agreed_leave_the_process(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, features=["user_traffic"], traffic={"rate": 0.5})
    optional = plane.open_run(client, features=["user_traffic"], traffic={"rate": 1, "consent": "optional"})
    plain = plane.open_run(client)
    assert [client.takes(run, s, consent=c) for s, c in [("anna", True), ("anna", False), ("s1", True), ("", True)]] == [True] + 3 * [False]
    assert client.takes(optional, "s1", consent=False)
    assert not client.takes(plain, "anna", consent=True)
    messages = [rondo.Message("user", "?", [1]), rondo.Message("assistant", "!", [2], [-1.0])]
    for session, consent, why in [("anna", False, "not agreed"), ("s1", True, "share of 0.5"), ("", True, "name the session")]:
        with pytest.raises(rondo.NotTaken, match=why):
            client.submit_query(run, "Mend it.", task="t", session=session, consent=consent)
        with pytest.raises(rondo.NotTaken, match=why):
            client.publish_trajectory(run, group="g", member=0, size=1, task="t", messages=messages, session=session, consent=consent)
    with pytest.raises(rondo.NotTaken, match="no users' traffic"):
        client.submit_query(plain, "Mend it.", task="t", session="anna", consent=True)
    with pytest.raises(rondo.IntakeError, match="no endpoint"):  # this one did reach the intake
        client.submit_query(run, "Mend it.", task="t", session="anna", consent=True)
    with pytest.raises(rondo.IntakeError, match="not agreed"):  # and is refused there, too, when it is stated by hand
        client.state(run, "group.opened", "xg", {"task": "t", "size": 1, "policy_version": 0, "session": "anna"})
    client.publish_trajectory(run, group="g", member=0, size=1, task="t", messages=messages, session="anna", consent=True)
