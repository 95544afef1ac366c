"""Trajectories of outsiders: the file, and handing it in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rondo
from rondo.trajectory import encode

from .conftest import Plane, bring, conversation


def test_the_file_says_what_was_brought() -> None:
    trajectory = rondo.Trajectory(conversation(1), reward=1.0, policy_version=3)
    data, figures = encode("r", "xg", "xg-0", "mend", trajectory)
    table = pa.ipc.open_file(data).read_all()
    told = table.to_pydict()
    assert told["index"] == [0, 1, 2, 3, 4] and told["turn"] == [0, 0, 0, 0, 1]
    assert told["role"] == ["system", "user", "assistant", "tool", "assistant"]
    assert [len(t) for t in told["token_ids"]] == [0, 5, 4, 3, 2]
    assert told["loss_mask"] == [[], [False] * 5, [True] * 4, [False] * 3, [True] * 2]
    assert told["policy_version"] == [-1, -1, 3, -1, 3]
    assert told["tool_calls"][2].startswith('[{"id": "c1"') and told["tool_call_id"][3] == "c1"
    assert table.schema.metadata[b"dispatch_version"] == b"3" and table.schema.metadata[b"text_only"] == b"false"
    assert figures == {
        **{"stop_reason": "finished", "turns": 2, "tokens": 14, "sampled": 6, "samples": 1},
        **{"text_only": False, "min_version": 3, "max_version": 3},
    }


def test_tokens_of_no_known_version_are_counted() -> None:
    messages = conversation(1)
    messages[2].policy_version = -1
    _, told = encode("r", "xg", "xg-0", "mend", rondo.Trajectory(messages, policy_version=3))
    assert told["unknown_versions"] == 4 and told["min_version"] == told["max_version"] == 3


def test_constrained_messages_are_marked() -> None:
    messages = conversation(1)
    messages[2].constrained = True
    data, told = encode("r", "xg", "xg-0", "mend", rondo.Trajectory(messages))
    table = pa.ipc.open_file(data).read_all()
    assert told["constrained"] == 4 and table.schema.metadata[b"schema_version"] == b"1"
    assert table.column("constrained").to_pylist() == [False, False, True, False, False]
    assert table.schema.names[-4:] == ["reasoning", "version_spans", "token_columns", "constrained"]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "assistant", "token_ids": [1]}, "message 0 was sampled, but has no logprobs"),
        ({"role": "assistant", "token_ids": [1], "logprobs": [-1, -2]}, "1 token ids, 2 logprobs"),
        ({"role": "user", "token_ids": [1], "loss_mask": [True, False]}, "2 entries of the loss mask"),
        ({"role": "user", "token_ids": [-1]}, "message 0: token 0 has the id -1"),
        ({"role": "user", "token_ids": [1 << 31]}, "message 0: token 0 has the id 2147483648"),
        ({"role": "user", "token_ids": [4, 5.9]}, "message 0: token 1 has the id 5.9"),
        ({"role": "user", "token_ids": np.array([4.0])}, "message 0: token 0 has the id 4.0"),
        ({"role": "user", "token_ids": np.array([True])}, "message 0: token 0 has the id True"),
        ({"role": "user", "token_ids": [1], "loss_mask": ["False"]}, "message 0: token 0 has the mask 'False'"),
        ({"role": "assistant", "token_ids": [1], "logprobs": [float("nan")]}, "message 0: token 0 has nan"),
        ({"role": "assistant", "token_ids": [1, 2], "logprobs": [-1, -9999.0]}, "message 0: token 1 has -9999"),
        ({"role": "assistant", "token_ids": [1], "logprobs": ["-1"]}, "message 0: token 0 has the log-probability '-1'"),
    ],
)
def test_what_is_wrong_is_named(message: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode("r", "xg", "xg-0", "mend", rondo.Trajectory([message]))


def test_a_group_may_be_handed_in_again(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    for _ in range(2):
        bring(client, run, 1, 2)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        batch = next(feed)
    assert batch["rollout_id"].tolist() == ["xg1-0", "xg1-1", "xg2-0", "xg2-1"]
    with pytest.raises(rondo.IntakeError, match="stated before with size 2, not 3"):
        bring(client, run, 1, 1, size=3)
    plane.command("audit", run)


def test_segments_become_samples(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 1}])
    client.publish_weights(f"policy-{run}", {"w": np.zeros(1)}, run=run, version=2, through_step=0)
    messages = [
        rondo.Message("user", "Long.", [1, 2, 3]),
        rondo.Message("assistant", "Yes.", [4, 5], [-0.5, -0.5], policy_version=1),
        rondo.Message("user", "A summary.", [9], segment=1),
        rondo.Message("assistant", "Done.", [6], [-0.25], segment=1, policy_version=2, finish_reason="length"),
    ]
    group = [rondo.Trajectory(messages, reward=float(i), policy_version=1, stop_reason="length") for i in range(2)]
    client.publish_group(run, group="long", task="mend", trajectories=group, policy_version=1)
    with rondo.Feed(run, "trainer", client=client, timeout=30) as feed:
        batch = next(feed)
    assert [row.tolist() for row in batch.tokens.rows()] == [[1, 2, 3, 4, 5], [9, 6]] * 2
    assert batch["sample_index"].tolist() == [0, 1, 0, 1] and batch["samples_in_rollout"].tolist() == [2] * 4
    assert batch.rollout_sampled.tolist() == [3] * 4
    assert [row.tolist() for row in batch.token_versions.rows()] == [[-1, -1, -1, 1, 1], [-1, 2]] * 2
    assert batch["truncated"].tolist() == [False, True] * 2
