"""What teachers and reference models say of a batch's tokens: columns, adapters, and the teacher outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rondo
from rondo.adapters.atropos import to_atropos
from rondo.adapters.prime_rl import to_prime_rl, to_prime_rl_samples
from rondo.adapters.slime import to_slime
from rondo.adapters.trl import to_trl
from rondo.adapters.verl import to_verl
from rondo.hints import table
from rondo.teaching import packed

from . import handmade


def test_each_teacher_has_a_column() -> None:
    batch = handmade.taught()
    assert batch.teachers == ["reference", "big-2"]
    said = batch.teacher_logprobs("reference")
    assert said.values.dtype == np.float32 and said.offsets.tolist() == batch.offsets.tolist()
    assert said.row(1).tolist() == [0, -1 / 4, -2 / 4] and batch.teacher_logprobs("big-2").row(2).tolist() == [0, -1, -2]
    assert batch.select(np.array([1])).teacher_logprobs("big-2").values.tolist() == [0, -1, -2]
    with pytest.raises(KeyError, match="not of 'other'"):
        batch.teacher_logprobs("other")
    plain = handmade.batch()
    assert plain.teachers == []
    with pytest.raises(KeyError, match="reference"):
        plain.teacher_logprobs("reference")


def test_a_column_that_is_shorter_than_the_tokens_is_damaged() -> None:
    rows = handmade.rows()
    schema = handmade.SCHEMA.append(pa.field("logprobs_a", pa.list_(pa.float32())))
    for row in rows:
        row["logprobs_a"] = [0.0] * (len(row["tokens"]) - 1)
    with pytest.raises(rondo.Damaged, match="tokens and logprobs_a are not equally long"):
        rondo.open_batch(handmade.file(rows, schema, teachers="a"))
    with pytest.raises(rondo.Damaged, match="logprobs_b is missing"):
        rondo.open_batch(handmade.file(rows, schema, teachers="b"))


def test_lists_have_the_place_of_their_tokens() -> None:
    batch = handmade.taught()
    assert "teacher_log_probs" not in to_slime(batch)
    told = to_slime(batch, teacher="reference")
    assert told["teacher_log_probs"] == [[-2 / 4, -3 / 4, -4 / 4, -5 / 4, -6 / 4], [-2 / 4], [-1 / 4, -2 / 4], [-4 / 4, -5 / 4, -6 / 4]]
    assert [len(row) for row in told["teacher_log_probs"]] == told["response_lengths"]
    assert "ref_logprobs" not in to_prime_rl_samples(batch)[0]
    for sample in to_prime_rl_samples(batch, reference="big-2"):
        assert sample["ref_logprobs"] == [-float(t) for t in range(len(sample["token_ids"]))]
    for micro in to_prime_rl(batch, reference="big-2"):
        assert len(micro["ref_logprobs"]) == len(micro["input_ids"]) and micro["ref_logprobs"][:3] == [0, -1, -2]
    first = to_atropos(batch, reference="reference")[0]
    assert first["ref_logprobs"][1] == [0, -1 / 4, -2 / 4] and "ref_logprobs" not in to_atropos(batch)[0]


def test_an_empty_micro_batch_has_one_token() -> None:
    rows = handmade.rows()
    for row in rows:
        row["micro_batch"] = 0
    assert to_prime_rl(handmade.taught(rows, micro_batches="2"), reference="reference")[1]["ref_logprobs"] == [0.0]


def test_tensors_have_the_place_of_their_tokens() -> None:
    pytest.importorskip("torch")
    batch = handmade.taught()
    verl, trl = to_verl(batch, reference="reference"), to_trl(batch, reference="reference")
    for told, name in ((verl, "ref_log_prob"), (trl, "ref_per_token_logps")):
        assert told[name].tolist()[2] == [-1 / 4, -2 / 4, 0, 0, 0] and told[name].shape == told["advantages"].shape
    assert "ref_log_prob" not in to_verl(batch) and "ref_per_token_logps" not in to_trl(batch)


def score(ids: Any) -> Any:
    return -np.arange(len(ids)) / 8


def test_what_a_model_says_becomes_an_object() -> None:
    tokens = [np.array([1, 2, 3], np.int32), np.array([4, 5], np.int32)]
    want = [0, -1 / 8, -2 / 8, 0, -1 / 8]
    assert np.frombuffer(packed(tokens, score), "<f4").tolist() == want
    assert np.frombuffer(packed(tokens, lambda ids: score(ids)[1:]), "<f4").tolist() == want, "without the first"
    assert np.frombuffer(packed(tokens, lambda ids: score(ids) - 1), "<f4")[0] == 0, "nothing is before the first token"
    for wrong, why in (
        (lambda ids: score(ids)[2:], "for 3 tokens"),
        (lambda ids: np.append(score(ids), 0), "4 log-probabilities"),
        (lambda ids: -score(ids), "above 0"),
        (lambda ids: np.full(len(ids), np.nan), "no log-probability"),
        (lambda ids: np.full(len(ids), -np.inf), "no log-probability"),
    ):
        with pytest.raises(ValueError, match=why):
            packed(tokens, wrong)
    with pytest.raises(rondo.Damaged):
        table(b"nothing")


def test_a_teacher_outside_reaches_the_batch(client: rondo.Client, plane: Any) -> None:
    feeds = [{"name": "trainer", "groups_per_batch": 1, "teachers": ["big"], "teacher_wait": "10m"}]
    run = plane.open_run(client, feeds=feeds, teachers=[{"name": "big"}])
    for member in range(2):
        messages = [
            rondo.Message("user", "Mend it.", [1, 2]),
            rondo.Message("assistant", "So.", [3, 4, 5], [-0.5, -0.25, -1]),
            rondo.Message("user", "Again.", [6, 7], segment=1),
            rondo.Message("assistant", "Done.", [8], [-0.5], segment=1),
        ]
        rollout = client.publish_trajectory(run, group="a", member=member, size=2, task="mend", messages=messages, reward=float(member))
        for _ in range(2):  # once more, as after a lost answer
            client.teach(run, rollout, "big", score, model="large", version="7")
        with pytest.raises(rondo.IntakeError, match="other content"):
            client.teach(run, rollout, "big", lambda ids: score(ids) * 2)
    with pytest.raises(rondo.IntakeError, match="no teacher of that name"):
        client.teach(run, "xa-0", "small", score)
    with pytest.raises(rondo.NotFound):
        client.teach(run, "xb-0", "big", score)
    with rondo.Feed(run, "trainer", client=client, timeout=60) as feed:
        batch = next(feed)
    assert batch.teachers == ["big"] and batch.tokens.lengths.tolist() == [5, 3, 5, 3]
    assert batch.teacher_logprobs("big").row(0).tolist() == [0, -1 / 8, -2 / 8, -3 / 8, -4 / 8]
    assert batch.teacher_logprobs("big").row(3).tolist() == [0, -1 / 8, -2 / 8]
