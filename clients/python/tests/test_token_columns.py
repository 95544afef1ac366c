"""What servers said of tokens beside their log-probabilities: arrays, adapters, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rondo
from rondo.adapters.prime_rl import to_prime_rl, to_prime_rl_samples
from rondo.adapters.skyrl import to_skyrl_generator
from rondo.adapters.slime import to_slime
from rondo.adapters.verl import to_verl, to_verl_trajectories
from rondo.objects import Store, open_store, put_blob

from . import handmade

LAYERS, TOP_K = 2, 3
TOP = np.dtype([("id", "<i4"), ("logprob", "<f4")])


def experts(token: int) -> list[list[int]]:
    """Those of the token with an id."""
    return [[(token + layer + rank) % 251 for rank in range(TOP_K)] for layer in range(LAYERS)]


def kept(store: Store, array: Any) -> dict[str, Any]:
    """An object with an array."""
    file = io.BytesIO()
    np.save(file, array)
    return put_blob(store, file.getvalue()).told()


def columned(store: Store, change: Callable[[list[dict[str, Any]]], Any] | None = None) -> rondo.Batch:
    """The handmade batch with experts for all tokens but the last of each sample, and with tops and masks for the sampled ones."""
    rows = handmade.rows()
    for row in rows:
        ids, columns = row["tokens"], []
        for begin, end in ((0, 1), (1, len(ids) - 1)):
            if begin < end:
                array = np.array([experts(0)] + [experts(t) for t in ids[begin:end]], np.uint8)
                columns.append({"name": "routed_experts", "start": begin, "length": end - begin, "row": 1, "object": kept(store, array)})
        for t, sampled in enumerate(row["loss_mask"]):
            if sampled:
                left = np.array([1, 2, ids[t], ids[t] + 5], np.int32)
                columns.append({"name": "sampling_mask", "start": t, "length": 1, "object": kept(store, left)})
                tops = np.array([[(ids[t], -0.5), (-1, -np.inf)]], TOP)
                columns.append({"name": "top_logprobs", "start": t, "length": 1, "object": kept(store, tops)})
        if change:
            change(columns)
        row["token_columns"] = json.dumps(columns)
    schema = handmade.SCHEMA.append(pa.field("token_columns", pa.string()))
    names = "routed_experts,sampling_mask,top_logprobs"
    return rondo.open_batch(handmade.file(rows, schema, token_columns=names), store=store)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def test_rows_have_the_place_of_their_tokens(store: Store) -> None:
    batch = columned(store)
    assert batch.token_columns == ["routed_experts", "sampling_mask", "top_logprobs"]
    routed, tops, mask = batch.routed_experts(), batch.top_logprobs(), batch.sampling_mask()
    assert routed.values.shape == (batch.token_count, LAYERS, TOP_K) and routed.whole.all()
    for t, token in enumerate(batch.tokens.values.tolist()):
        last = t + 1 in batch.offsets
        assert routed.known[t] != last and routed.values[t].tolist() == ([[0] * TOP_K] * LAYERS if last else experts(token))
        sampled = batch.loss_mask.values[t]
        assert tops.known[t] == mask.known[t] == sampled
        assert tops.values["id"][t].tolist() == ([token, -1] if sampled else [-1, -1]) and np.isneginf(tops.values["logprob"][t, 1])
        assert mask.ids[mask.starts[t] : mask.starts[t + 1]].tolist() == ([token, token + 5] if sampled else [])
    part = batch.select(np.array([2]))
    assert part.routed_experts().values.tolist() == routed.row(2)[0].tolist()
    plain = handmade.batch()
    assert plain.token_columns == [] and not plain.routed_experts().known.any() and not plain.sampling_mask().known.any()


def test_adapters_pass_experts_and_masks_on(store: Store) -> None:
    batch = columned(store)
    every = [[experts(t) for t in row[:-1].tolist()] + [[[0] * TOP_K] * LAYERS] for row in batch.tokens.rows()]
    told = to_slime(batch, experts=True, masks=True)
    assert [rows.tolist() for rows in told["rollout_routed_experts"]] == [rows[:-1] for rows in every]
    for ids, offsets, length, loss in zip(
        told["rollout_top_p_token_ids"], told["rollout_top_p_token_offsets"], told["response_lengths"], told["loss_masks"], strict=True
    ):
        assert len(offsets) == length + 1 and offsets[-1] == len(ids) and np.diff(offsets).tolist() == [2 * sampled for sampled in loss]
    for sample, rows in zip(to_prime_rl_samples(batch, experts=True), every, strict=True):
        data, shape, kind = sample["routed_experts"]
        assert np.frombuffer(data, kind).reshape(shape).tolist() == rows
    assert sum(micro["routed_experts"][1][0] for micro in to_prime_rl(batch, experts=True)) == batch.token_count
    assert [rows.tolist() for rows in to_skyrl_generator(batch, step_wise=True, experts=True)["rollout_expert_indices"]] == every
    pytest.importorskip("torch")
    verl = to_verl(batch, experts=True)
    for ids, present, rows, want in zip(verl["input_ids"], verl["attention_mask"].bool(), verl["routed_experts"], every, strict=True):
        assert rows[present].tolist() == want and not rows[~present].any() and len(ids) == len(rows)
    assert [row["routed_experts"].tolist() for row in to_verl_trajectories(batch, scores="advantages", experts=True)] == every


def test_what_is_not_known_is_not_replayed(store: Store) -> None:
    batch = columned(store, lambda columns: columns.pop(0))
    assert not batch.routed_experts().whole.all()
    with pytest.raises(ValueError, match="experts are not known"):
        to_slime(batch, experts=True)

    def unmasked(columns: list[dict[str, Any]]) -> None:
        columns[:] = [c for c in columns if c["name"] != "sampling_mask"]

    batch = columned(store, unmasked)
    with pytest.raises(ValueError, match="not known of all sampled"):
        to_slime(batch, masks=True)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"start": 99}, "does not fit"),
        ({"row": 7}, "does not fit the other rows"),
        ({"object": {"ref": "runs/other/x", "sha256": "0" * 64, "size": 1}}, "no blob"),
        ({"object": 3}, "reference 3"),
    ],
)
def test_what_does_not_fit_is_damaged(store: Store, change: dict[str, Any], why: str) -> None:
    batch = columned(store, lambda columns: columns[0].update(change))
    with pytest.raises(rondo.Damaged, match=why):
        batch.routed_experts()


def replaced(columns: list[dict[str, Any]], told: dict[str, Any]) -> None:
    for c in columns:
        c["object"] = told


def test_objects_that_are_no_arrays_are_damaged(store: Store) -> None:
    for array in (np.zeros((3, 2), np.uint8), np.zeros((3, 2, 3), np.float64), np.array([5, 1, 9], np.int32), np.array([{}], object)):
        told = kept(store, array)
        batch = columned(store, partial(replaced, told=told))
        for read in (batch.routed_experts, batch.top_logprobs, batch.sampling_mask):
            with pytest.raises(rondo.Damaged):
                read()
    batch = columned(store)
    batch._store = None
    with pytest.raises(rondo.RondoError, match="open_batch"):
        batch.routed_experts()
