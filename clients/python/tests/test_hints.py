"""Hints about spans of a batch's tokens: columns, the loss at them, and the judge and the teacher outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rondo
from rondo.adapters.hints import hint_loss
from rondo.adapters.slime import to_slime
from rondo.hints import located, prompts, samples

from . import handmade


def test_a_batch_has_the_hints_of_its_samples() -> None:
    batch = handmade.hinted()
    assert batch.hinter == "judge" and batch.hinted_teachers == ["own"] and batch.teachers == ["reference", "own"]
    assert batch.hints == [[rondo.HintSpan(0, 2, 2, 1, "Look first.", ())], [], [], [rondo.HintSpan(1, 6, 1, 4, "Look first.", (9,))]]
    assert np.flatnonzero(batch.hint_mask.row(0)).tolist() == [2, 3] and np.flatnonzero(batch.hint_mask.row(3)).tolist() == [6]
    said = batch.hinted_logprobs("own")
    assert said.row(0)[2:4].tolist() == [-1, -1.5] and said.row(3)[6] == -3
    assert np.array_equal(np.isfinite(said.values), batch.hint_mask.values), "nothing is said of other tokens"
    last = batch.select(np.array([3]))
    assert len(last.hints) == 1 and last.hint_mask.values.tolist() == [False] * 6 + [True]
    with pytest.raises(KeyError, match="take hints, not 'reference'"):
        batch.hinted_logprobs("reference")
    with pytest.raises(KeyError, match=r"teachers \['reference'\], not of 'own'"):
        to_slime(batch, teacher="own")
    plain = handmade.batch()
    assert plain.hinter == "" and plain.hints == [[], [], [], []] and not plain.hint_mask.values.any() and plain.hinted_teachers == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '[{"turn":0}]',
        *(f'[{{"turn":0,"start":{s},"length":{n},"at":{at}}}]' for s, n, at in ((5, 3, 0), (-1, 1, 0), (2, 0, 0), (2, 1, 3))),
    ],
)
def test_hints_that_do_not_fit_are_damaged(text: str) -> None:
    rows = handmade.rows()
    schema = handmade.SCHEMA.append(pa.field("hints", pa.string()))
    for row in rows:
        row["hints"] = text
    batch = rondo.open_batch(handmade.file(rows, schema, hints="judge"))
    with pytest.raises(rondo.Damaged, match="hint"):
        _ = batch.hints
    with pytest.raises(rondo.Damaged, match="hints is missing"):
        rondo.open_batch(handmade.file(handmade.rows(), hints="judge"))


def test_the_loss_is_that_computed_by_hand() -> None:
    batch = handmade.hinted()
    # The teacher says -1 and -1.5 of tokens 2 and 3 of the first row and -3 of token 6 of the last; the policy says -0.5 of every token.
    # (0.5² + 1² + 2.5²) / 2 = 3.75, and 0.5 + 1 + 2.5 = 4.
    flat = np.full(batch.token_count, -0.5)
    width = int(batch.lengths.max())
    for logprobs, shifted in (
        (flat, False),
        (flat[1:], True),
        (np.full((len(batch), width), -0.5), False),
        (np.full((len(batch), width + 2), -0.5), False),
        (np.full((len(batch), width - 1), -0.5), True),
    ):
        assert hint_loss(batch, "own", logprobs, shifted=shifted) == (3.75, 4.0, 3)
    # Each token its own value: those of the hinted tokens count, in their places.
    padded = batch.hinted_logprobs("own").padded()
    padded[0, 2] += 1
    assert hint_loss(batch, "own", padded) == (0.5, 1.0, 1 + 2)
    assert hint_loss(batch, "own", padded[:, 1:], shifted=True) == (0.5, 1.0, 3)
    parts = [hint_loss(batch.select(np.array([row])), "own", np.full(int(batch.lengths[row]), -0.5)) for row in range(4)]
    assert [sum(part[i] for part in parts) for i in range(3)] == [3.75, 4.0, 3], "micro-batches add up"
    with pytest.raises(ValueError, match="shape"):
        hint_loss(batch, "own", flat[2:])


def test_the_gradient_is_that_of_the_divergence() -> None:
    torch = pytest.importorskip("torch")
    batch = handmade.hinted()
    logprobs = torch.full((len(batch), int(batch.lengths.max())), -0.5, requires_grad=True)
    told = hint_loss(batch, "own", logprobs)
    told.loss.backward()
    want = np.zeros(tuple(logprobs.shape))
    want[0, 2], want[0, 3], want[3, 6] = 0.5, 1, 2.5  # s - t, times the gradient of s
    assert logprobs.grad.tolist() == want.tolist() and told.loss.item() == 3.75 and told.kl == 4.0


def rows() -> pa.Table:
    """Two samples: a prompt of two tokens, three sampled in turn 0, two of a tool, one in turn 1; and a prompt and two of turn 2."""
    told = [
        (0, 0, [1, 2], ".."),
        (0, 0, [3, 4, 5], "sss"),
        (0, 0, [6, 7], ".."),
        (0, 1, [8], "s"),
        (1, 2, [9], "."),
        (1, 2, [10, 11], "ss"),
    ]
    table = [{"segment": s, "turn": t, "token_ids": ids, "loss_mask": [c == "s" for c in mask]} for s, t, ids, mask in told]
    return pa.Table.from_pylist(table)


def test_hints_name_turns_and_become_spans() -> None:
    given = [rondo.Hint("c", 2, 1), rondo.Hint("a", 0, 1, 2, tokens=[60]), rondo.Hint("b", 1, at=5)]
    told = located(samples(rows()), given)
    assert told == [
        {"sample": 0, "start": 3, "length": 2, "text": "a", "tokens": [60]},
        {"sample": 0, "start": 7, "length": 1, "text": "b", "at": 5},
        {"sample": 1, "start": 2, "length": 1, "text": "c"},
    ]
    found = [(ids.tolist(), length) for ids, length in prompts(samples(rows()), told, lambda text: [ord(c) for c in text])]
    assert found == [([1, 2, 60, 3, 4, 5], 2), ([1, 2, 3, 4, 5, 98, 6, 7, 8], 1), ([9, 99, 10, 11], 1)]
    with pytest.raises(ValueError, match="give tokenize"):
        prompts(samples(rows()), told, None)
    for wrong in (
        rondo.Hint("x", 3),
        rondo.Hint("x", -1),
        rondo.Hint("x", 0, 3),
        rondo.Hint("x", 0, -1),
        rondo.Hint("x", 0, 0, 4),
        rondo.Hint("x", 0, 0, 0),
    ):
        with pytest.raises(ValueError, match="which sampled"):
            located(samples(rows()), [wrong])
    wrong_ids: list[Any] = [[5.9], [True], ["5"], [-1]]
    for ids in wrong_ids:  # what is no token id is not made one
        with pytest.raises(ValueError, match="token 0 has the id"):
            located(samples(rows()), [rondo.Hint("x", 0, tokens=ids)])
        with pytest.raises(ValueError, match="token 0 has the id"):
            prompts(samples(rows()), told[1:], lambda _, ids=ids: ids)  # type: ignore[misc]


def score(ids: Any) -> Any:
    return -np.asarray(ids, np.float64) / 8


def test_a_judge_and_a_teacher_outside_reach_the_batch(client: rondo.Client, plane: Any) -> None:
    feeds = [{"name": "trainer", "groups_per_batch": 1, "hints": "judge", "teachers": ["own"], "teacher_wait": "10m"}]
    run = plane.open_run(client, feeds=feeds, teachers=[{"name": "own", "hints": "judge"}])
    for member in range(2):
        messages = [
            rondo.Message("user", "Mend it.", [1, 2]),
            rondo.Message("assistant", "So.", [3, 4, 5], [-0.5, -0.25, -1]),
            rondo.Message("user", "Again.", [6, 7], segment=1),
            rondo.Message("assistant", "Done.", [8], [-0.5], segment=1),
        ]
        client.publish_trajectory(run, group="a", member=member, size=2, task="mend", messages=messages, reward=float(member))
    assert client.trajectory(run, "xa-0").column("content").to_pylist() == ["Mend it.", "So.", "Again.", "Done."]
    with pytest.raises(rondo.NotFound, match="judge has stated no hints"):
        client.teach(run, "xa-0", "own", score)
    given = [rondo.Hint("Look first.", 1, tokens=[60, 61]), rondo.Hint("no", 0, 1)]
    for _ in range(2):  # once more, as after a lost answer
        client.hint(run, "xa-0", "judge", given)
    client.hint(run, "xa-1", "judge", [])
    with pytest.raises(rondo.IntakeError, match="other content"):
        client.hint(run, "xa-0", "judge", [])
    with pytest.raises(rondo.IntakeError, match="takes hints of that name"):
        client.hint(run, "xa-0", "somebody", [])
    with pytest.raises(rondo.NotFound):
        client.hint(run, "xb-0", "judge", [])
    asked: list[list[int]] = []

    def model(ids: Any) -> Any:
        asked.append(ids.tolist())
        return score(ids)

    client.teach(run, "xa-0", "own", model, tokenize=lambda text: [ord(c) for c in text])
    assert asked == [[1, 2, 110, 111, 3, 4, 5], [6, 7, 60, 61, 8]]
    with rondo.Feed(run, "trainer", client=client, timeout=60) as feed:
        batch = next(feed)
    assert [[(h.start, h.length, h.text) for h in spans] for spans in batch.hints] == [[(3, 2, "no")], [(2, 1, "Look first.")], [], []]
    said = batch.hinted_logprobs("own")
    assert said.row(0)[3:].tolist() == [-4 / 8, -5 / 8] and said.row(1)[2] == -1 and np.isfinite(said.values).sum() == 3
    assert hint_loss(batch, "own", np.zeros(batch.token_count)).tokens == 3
