"""Feeds of a live plane."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rondo

from .conftest import KEYS, Plane, bring, until


def facts(client: rondo.Client, run: str, type: str, field: str, entity: str = "trainer") -> list[int]:
    """What the log says: a field of all facts of a type, in order."""

    async def read() -> list[int]:
        found: list[int] = []
        sequence = 1
        while True:
            fact = await client.asynchronous.log.next(run, f"rondo.v1.{run}.{type.replace('.', f'.{entity}.')}", sequence)
            if fact is None:
                return found
            found.append(fact.data[field])
            sequence = fact.sequence + 1

    return client.loop.run(read())


def digest(batch: rondo.Batch) -> str:
    return str(batch.ready["files"][batch.rank]["sha256"])


def take(feed: rondo.Feed, count: int) -> list[rondo.Batch]:
    """Take some batches as a trainer does."""
    taken = []
    for batch in feed:
        feed.consumed(batch)
        taken.append(batch)
        if len(taken) == count:
            break
    return taken


def test_a_trainer_gets_every_batch_and_the_log_knows(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 6)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        for batch in feed:
            assert batch.ready["step"] == batch.step and len(batch) == 4 and batch.token_count == 56
            assert np.array_equal(batch.loss_mask.values, batch.advantages.values != 0)
            feed.consumed(batch)
            assert (
                feed.publish_weights({"w": np.full(3, batch.step, np.float32)}, version=batch.step, through_step=batch.step) == batch.step
            )
            feed.checkpointed(batch)
            if batch.step == 3:
                client.state(run, "run.closed", run, {})  # then the feed ends
        assert next(feed, None) is None
    for call in (lambda: next(feed), lambda: feed.consumed(3), lambda: feed.rewound(1)):
        with pytest.raises(rondo.RondoError, match="is closed"):
            call()
    for type in ("batch.consumed", "batch.checkpointed"):
        assert facts(client, run, type, "step") == [1, 2, 3]
    # The run has a copy of the catalogue's.
    until(lambda: facts(client, run, "weights.published", "through_step", f"policy-{run}") == [1, 2, 3], 30)


def test_a_restarted_trainer_goes_back_to_its_checkpoint(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 8)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        first = take(feed, 4)
    with rondo.Feed(run, "trainer", client=client, after=2, timeout=30) as feed:
        again = take(feed, 2)
    assert [b.step for b in again] == [3, 4]
    assert [digest(b) for b in again] == [digest(b) for b in first[2:]]
    assert [b.tokens.values.tolist() for b in again] == [b.tokens.values.tolist() for b in first[2:]]
    assert facts(client, run, "batch.rewound", "to_step") == [2]
    assert facts(client, run, "batch.consumed", "step") == [1, 2, 3, 4, 3, 4]
    with rondo.Feed(run, "trainer", client=client, after=4, timeout=30):  # the log agrees: there is nothing to say
        pass
    assert facts(client, run, "batch.rewound", "to_step") == [2]


def test_who_only_looks_moves_nothing(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 4)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        trained = take(feed, 2)
    with rondo.Feed(run, "trainer", client=client, observe=True, timeout=30) as feed:
        assert [digest(b) for b in take(feed, 2)] == [digest(b) for b in trained]
        assert feed.publish_weights({"w": np.zeros(1)}, through_step=1) is None
        feed.rewound(0)
        assert next(feed).step == 1
    assert facts(client, run, "batch.consumed", "step") == [1, 2]
    assert facts(client, run, "batch.rewound", "to_step") == []


def test_a_checkpoint_that_the_log_does_not_know_of_counts_as_consumed(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 4)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        assert next(feed).step == 1  # trained and saved, but killed before it could say so
    with rondo.Feed(run, "trainer", client=client, after=1, timeout=30) as feed:
        assert next(feed).step == 2
    assert facts(client, run, "batch.consumed", "step") == [1]
    assert facts(client, run, "batch.rewound", "to_step") == []


def test_a_trainer_may_go_back_while_it_runs(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 6)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        first = take(feed, 3)
        feed.rewound(first[0])
        again = take(feed, 2)
        feed.rewound(1)
        assert [b.step for b in take(feed, 1)] == [2]
    assert [digest(b) for b in again] == [digest(b) for b in first[1:]]
    assert facts(client, run, "batch.rewound", "to_step") == [1, 1]
    assert facts(client, run, "batch.consumed", "step") == [1, 2, 3, 2, 3, 2]


def test_a_feed_far_into_a_run_finds_its_place(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 1}])
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        for step in range(1, 31):
            bring(client, run, step, 1)
            feed.consumed(next(feed))
    for after in (0, 1, 13, 29):
        with rondo.Feed(run, "trainer", client=client, after=after, timeout=30) as feed:
            assert next(feed).step == after + 1


def test_ranks_have_files_of_their_own_and_the_first_one_speaks(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 4, "ranks": 2, "micro_batch": {"tokens": 28}}])
    bring(client, run, 1, 4)
    seen: list[str] = []
    counts = set()
    for rank in (1, 0):
        with rondo.Feed(run, "trainer", client=client, rank=rank, timeout=30) as feed:
            batch = next(feed)
            assert (batch.rank, batch.ranks) == (rank, 2)
            feed.consumed(batch)
            feed.checkpointed(batch)
            assert (feed.publish_weights({"w": np.zeros(1)}, version=1, through_step=1) == 1) is (rank == 0)
            assert facts(client, run, "batch.consumed", "step") == ([] if rank == 1 else [1])
            seen += batch["rollout_id"].tolist()
            parts = list(batch.micro_batches())
            assert sum(len(p) for p in parts) == len(batch) and all(p.token_count <= 28 for p in parts)
            counts.add(len(parts))
    assert sorted(seen) == [f"xg{g}-{i}" for g in range(1, 5) for i in range(2)]
    assert len(counts) == 1
    with pytest.raises(rondo.RondoError, match="rank 2: feed trainer .* has 2 ranks"):
        rondo.Feed(run, "trainer", client=client, rank=2)


def test_two_feeds_stand_where_each_of_them_is(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 2}, {"name": "shadow", "groups_per_batch": 1}])
    bring(client, run, 1, 4)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as a, rondo.Feed(run, "shadow", client=client, timeout=30) as b:
        take(a, 1)
        assert [len(x) for x in take(b, 3)] == [2, 2, 2]
    assert facts(client, run, "batch.consumed", "step") == [1]
    assert facts(client, run, "batch.consumed", "step", "shadow") == [1, 2, 3]


def test_asyncio(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 4)

    async def train() -> list[int]:
        steps = []
        async with rondo.AsyncFeed(run, "trainer", dir=plane.dir, timeout=30) as feed:
            assert feed.policy == f"policy-{run}"
            async for batch in feed:
                await feed.consumed(batch)
                await feed.publish_weights({"w": np.zeros(2)}, through_step=batch.step)
                await feed.checkpointed(batch)
                steps.append(batch.step)
                if batch.step == 2:
                    break
        return steps

    assert asyncio.run(train()) == [1, 2]
    until(lambda: facts(client, run, "weights.published", "version", f"policy-{run}") == [1, 2], 30)  # numbered by themselves


def test_what_is_not_there(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    with pytest.raises(rondo.NotFound, match="there is no run 'nothing'"):
        rondo.Feed("nothing", "trainer", client=client)
    with pytest.raises(rondo.NotFound, match="has no feed 'tester', but trainer"):
        rondo.Feed(run, "tester", client=client)
    with pytest.raises(rondo.RondoError, match="holds step 9, but feed trainer of run .* has only reached 0"):
        rondo.Feed(run, "trainer", client=client, after=9)
    with rondo.Feed(run, "trainer", client=client, timeout=0.2) as feed, pytest.raises(TimeoutError, match="next batch of feed trainer"):
        next(feed)


@pytest.mark.parametrize("wrong", [{"after": -1}, {"rank": -1}, {"prefetch": 0}])
def test_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        rondo.AsyncFeed("r", "f", **wrong)


def test_a_damaged_file_is_never_trained_on(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 2)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        ref = next(feed).ready["files"][0]
    path = Path(plane.dir) / "objects" / ref["ref"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        for _ in range(2):  # asked again, it is still damaged
            with pytest.raises(rondo.Damaged, match=f"sha256 {hashlib.sha256(data).hexdigest()} instead of {ref['sha256']}"):
                next(feed)


def test_prefetching_is_bounded(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 1}])
    bring(client, run, 1, 6)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        take(feed, 6)
    with rondo.Feed(run, "trainer", client=client, timeout=30, prefetch=2) as feed:
        assert next(feed).step == 1
        queue = feed.asynchronous._queue
        assert queue.maxsize == 2 and queue.qsize() <= 2
        assert [b.step for b in take(feed, 5)] == [2, 3, 4, 5, 6]


def test_a_plane_whose_objects_are_in_a_bucket(binary: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    plane = Plane(binary, tmp_path / "plane", "--store", bucket)
    plane.start()
    try:
        with rondo.Client(plane.dir, wait=60) as client:
            run = plane.open_run(client)
            bring(client, run, 1, 2)
            with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
                batch = next(feed)
                assert batch.token_count == 56
                feed.consumed(batch)
                assert feed.publish_weights({"w": np.zeros(3)}, version=1, through_step=1) == 1
        assert not (plane.dir / "objects").exists()
    finally:
        plane.stop()


def test_what_a_trainer_leaves_out_is_stale_in_the_books(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 2)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        batch = next(feed)
        version = int(batch["dispatch_version"].max())
        assert batch.stale(version + 4, 4) == [], "as old as allowed"
        every = batch.stale(version + 5, 4)
        assert sorted(every) == sorted(set(batch["rollout_id"].tolist())) == sorted(batch.ready["rollouts"])
        with pytest.raises(rondo.IntakeError, match="no rollout of the batch"):
            feed.consumed(batch, stale=["g000099-0"])
        feed.consumed(batch, stale=every[:1])
        feed.consumed(batch)  # a second word on it takes nothing back
    (books,) = json.loads(plane.command("run", "show", run, "--json"))["feeds"]
    assert (books["trained"], books["stale"], books["in_flight"]) == (3, 1, 0)
    plane.command("audit", run)
