"""Batches as numpy columns and torch tensors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import rondo

from . import handmade


def test_lists_are_views_of_the_files_memory() -> None:
    batch = handmade.batch()
    for name in ("tokens", "sampler_logprobs", "advantages"):
        values, offsets = batch.column(name)
        column = batch.table.column(name).chunk(0)
        assert values.ctypes.data == column.values.buffers()[1].address
        assert offsets.ctypes.data == column.buffers()[1].address
        assert not values.flags.writeable
        assert [values[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)] == column.to_pylist()


def test_columns_are_what_the_file_says() -> None:
    batch = handmade.batch()
    told = batch.table.to_pydict()
    assert batch.loss_mask.values.dtype == np.bool_
    assert [row.tolist() for row in batch.loss_mask.rows()] == told["loss_mask"]
    assert batch["reward"].tolist() == batch.rewards.tolist() == told["reward"]
    assert batch["truncated"].tolist() == told["truncated"]
    assert batch["task"].tolist() == told["task"]
    assert batch.lengths.tolist() == [7, 3, 3, 7]
    assert batch.groups.tolist() == [0, 0, 1, 1]
    assert batch.rollouts.tolist() == [0, 1, 2, 2]
    assert batch.rollout_sampled.tolist() == [4, 1, 5, 5]
    assert (batch.step, batch.run, batch.feed, batch.rank, batch.ranks, len(batch), batch.token_count) == (
        7,
        "mine",
        "trainer",
        0,
        1,
        4,
        20,
    )
    with pytest.raises(KeyError, match="no column 'nothing'"):
        batch["nothing"]


def test_spans_expand_to_tokens() -> None:
    batch = handmade.batch()
    assert [row.tolist() for row in batch.token_turns.rows()] == [
        [-1, -1, 0, 0, -1, 1, 1],
        [-1, -1, 0],
        [-1, 0, 0],
        [-1, -1, -1, -1, 1, 1, 1],
    ]
    assert [row.tolist() for row in batch.token_versions.rows()] == [
        [-1, -1, 3, 3, -1, 4, 4],
        [-1, -1, 3],
        [-1, 3, 3],
        [-1, -1, -1, -1, 4, 4, 4],
    ]


@pytest.mark.parametrize("numbers", [[1, 2], [0, 3], [3], [], [2, 0]])
def test_a_selection_of_rows_says_what_those_rows_say(numbers: list[int]) -> None:
    whole = handmade.batch()
    part = whole.select(np.array(numbers, np.intp))
    assert len(part) == len(numbers)
    for name in whole.names:
        assert part.table.column(name).to_pylist() == [whole.table.column(name).to_pylist()[i] for i in numbers]
    for name in ("tokens", "loss_mask", "advantages"):
        assert [row.tolist() for row in part.column(name).rows()] == [whole.column(name).row(i).tolist() for i in numbers]
    assert [row.tolist() for row in part.token_versions.rows()] == [whole.token_versions.row(i).tolist() for i in numbers]
    assert part.offsets[0] == 0


def test_booleans_are_right_wherever_a_slice_begins() -> None:
    masks = ["." * (i % 5) + "0" * (i % 3 + 1) for i in range(40)]
    whole = handmade.batch([handmade.sample(f"g{i:06}", 0, m, 10 * i) for i, m in enumerate(masks)])
    for first in range(0, 40, 3):
        part = whole.select(np.arange(first, 40))
        assert [row.tolist() for row in part.loss_mask.rows()] == [[c != "." for c in m] for m in masks[first:]]


def test_micro_batches_are_those_of_the_feed_and_may_be_empty() -> None:
    samples = handmade.rows()
    for row, number in zip(samples, [1, 0, 1, 0], strict=True):
        row["micro_batch"] = number
    parts = list(handmade.batch(samples, micro_batches="3").micro_batches())
    assert [p["rollout_id"].tolist() for p in parts] == [["g000001-1", "g000002-0"], ["g000001-0", "g000002-0"], []]
    assert parts[2].token_count == 0 and parts[2].tokens.padded().shape == (0, 0)
    assert len(list(handmade.batch().micro_batches())) == 1


def test_padding() -> None:
    batch = handmade.batch()
    assert batch.tokens.padded(-1).tolist()[1] == [200, 201, 202, -1, -1, -1, -1]
    assert batch.tokens.padded(0, 9).shape == (4, 9)
    with pytest.raises(ValueError, match="a row has 7 entries, more than the width 6"):
        batch.tokens.padded(0, 6)


def test_constrained_tokens_are_marked() -> None:
    assert (
        not handmade.batch().constrained.values.any() and handmade.batch().constrained.lengths.tolist() == handmade.batch().lengths.tolist()
    )
    samples = [{**row, "constrained": [t == 2 for t in range(len(row["tokens"]))]} for row in handmade.rows()]
    schema = handmade.SCHEMA.append(pa.field("constrained", pa.list_(pa.bool_())))
    marked = rondo.open_batch(handmade.file(samples, schema, constrained="4"))
    assert [marked.constrained.row(i).tolist().index(True) for i in range(4)] == [2] * 4
    assert marked.select(np.array([1])).constrained.values.tolist() == [False, False, True]
    with pytest.raises(rondo.Damaged, match="constrained is missing"):
        rondo.open_batch(handmade.file(handmade.rows(), constrained="4"))


def test_an_empty_batch_has_columns() -> None:
    batch = handmade.batch([])
    assert batch.tokens.padded().shape == (0, 0)
    assert batch.token_versions.values.shape == (0,)
    assert batch.groups.shape == (0,)


def bad_files() -> dict[str, tuple[bytes, str]]:
    good = handmade.file(handmade.rows())
    long = handmade.rows()
    long[2]["advantages"] = [1.0]
    types = handmade.SCHEMA.set(10, pa.field("tokens", pa.list_(pa.int64())))
    return {
        "no Arrow file": (b"hello", "not a batch file"),
        "half a file": (good[: len(good) // 2], "not a batch file"),
        "a trajectory": (handmade.file(handmade.rows(), kind="trajectory"), "kind 'trajectory'"),
        "of another version": (handmade.file(handmade.rows(), schema_version="9"), "schema version '9'"),
        "lists that disagree": (handmade.file(long), "tokens and advantages are not equally long"),
        "another type": (handmade.file(handmade.rows(), types), "tokens is missing or not a list of int32"),
        "a column too few": (
            handmade.file([{k: v for k, v in r.items() if k != "tokens"} for r in handmade.rows()], handmade.SCHEMA.remove(10)),
            "tokens is missing",
        ),
        "nulls": (handmade.file([{**handmade.rows()[0], "tokens": None}]), "tokens has nulls"),
    }


@pytest.mark.parametrize("name", bad_files())
def test_what_is_no_batch_is_refused(name: str) -> None:
    data, why = bad_files()[name]
    with pytest.raises(rondo.Damaged, match=why):
        rondo.open_batch(data)


def test_padded_tensors() -> None:
    torch = pytest.importorskip("torch")
    batch = handmade.batch()
    t = batch.to_torch(pad_id=9)
    assert t.input_ids.dtype == torch.int64 and t.input_ids.tolist()[1] == [200, 201, 202, 9, 9, 9, 9]
    assert t.attention_mask.tolist()[1] == [1, 1, 1, 0, 0, 0, 0]
    assert t.position_ids.tolist()[1] == [0, 1, 2, 0, 0, 0, 0]
    assert t.loss_mask.dtype == torch.bool and t.loss_mask.tolist()[1] == [False, False, True, False, False, False, False]
    assert t.sampler_logprobs.tolist()[1] == [0, 0, -0.375, 0, 0, 0, 0]
    assert t.advantages.tolist()[1] == [0, 0, -0.5, 0, 0, 0, 0]
    assert t.rewards.tolist() == [1, 0, 1, 1]
    assert t.lengths.tolist() == [7, 3, 3, 7] and t.prompt_lengths.tolist() == [2, 2, 1, 4]
    assert t.groups.tolist() == [0, 0, 1, 1] and t.samples_in_rollout.tolist() == [1, 1, 2, 2]
    assert t.input_ids.shape == t.loss_mask.shape == t.advantages.shape == (4, 7)
    assert batch.to_torch(width=8).input_ids.shape == (4, 8)
    assert batch.to_torch(device="cpu")["rewards"].device.type == "cpu"
    with pytest.raises(AttributeError, match="no tensor 'nothing' among input_ids"):
        _ = t.nothing
    t.advantages.zero_()  # the tensors are the caller's own
    assert batch.advantages.values.any()


def test_packed_tensors() -> None:
    torch = pytest.importorskip("torch")
    empty = handmade.batch([]).to_torch(packed=True)
    assert empty.cu_seqlens.tolist() == [0] and empty.max_seqlen == 0
    t = handmade.batch().to_torch(packed=True)
    assert t.cu_seqlens.dtype == torch.int32 and t.cu_seqlens.tolist() == [0, 7, 10, 13, 20] and t.max_seqlen == 7
    assert t.position_ids.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6]
    assert t.input_ids.tolist()[7:10] == [200, 201, 202]
    assert t.loss_mask.tolist()[7:10] == [False, False, True]
    assert t.advantages.shape == t.sampler_logprobs.shape == (20,)
