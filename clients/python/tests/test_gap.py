"""How far a trainer's log-probabilities are from the sampler's, against figures computed by hand.

The batch is that of handmade.rows: the samples ..00.11, ..0, .00 and ....111, of which 0 was sampled by version 3 and 1 by version 4.
Token t of a sample has the log-probability -(t + 1) / 8.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import rondo

from . import handmade
from .conftest import Plane, bring, until

#: What is added to the sampler's log-probabilities, on the tokens of version 3 and on those of version 4.
SHIFTS = {3: [0.25, -0.5, 0.0, 0.125, 1.0], 4: [-0.75, 0.5, 0.0, 0.0, 0.25]}
#: Everything that is not compared is far off.
ELSEWHERE = -77.0


def trainer(batch: rondo.Batch, version: int) -> np.ndarray[Any, Any]:
    """The log-probabilities of a trainer with the weights of a version, flat, float64."""
    out = np.full(batch.token_count, ELSEWHERE)
    sampled = batch.token_versions.values == version
    out[sampled] = batch.sampler_logprobs.values[sampled] + np.array(SHIFTS[version])
    return out


def by_hand(version: int) -> rondo.LogprobGap:
    shifts = SHIFTS[version]
    divergence = math.fsum(math.exp(d) - 1 - d for d in shifts) / len(shifts)
    return rondo.LogprobGap(math.fsum(map(abs, shifts)) / len(shifts), max(map(abs, shifts)), divergence, len(shifts))


def same(got: rondo.LogprobGap | None, want: rondo.LogprobGap) -> None:
    assert got is not None
    assert got == pytest.approx(want, rel=1e-12)
    assert [type(v) for v in got] == [float, float, float, int]


def test_the_reference_is_what_the_formulas_say() -> None:
    want = by_hand(3)
    assert want[:2] == (0.375, 1.0) and want.tokens == 5
    # e^.25 = 1.2840254, e^-.5 = 0.6065307, e^0 = 1, e^.125 = 1.1331485, e^1 = 2.7182818; less 1 and less the shift, their mean
    assert want.kl == pytest.approx((0.0340254 + 0.1065307 + 0 + 0.0081485 + 0.7182818) / 5, abs=1e-7)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("shape", ["flat", "padded", "wider", "rows", "ragged"])
@pytest.mark.parametrize("shifted", [False, True])
def test_every_shape_gives_the_same_figures(version: int, shape: str, shifted: bool) -> None:
    batch = handmade.batch()
    ours = rondo.Ragged(trainer(batch, version), batch.offsets)
    skip = int(shifted)
    given: Any = {
        "flat": ours.values[skip:],
        "padded": ours.padded(ELSEWHERE)[:, skip:],
        "wider": ours.padded(math.nan, 12)[:, skip:],  # of padding nothing is read
        "rows": [row[skip:] for row in ours.rows()],
        "ragged": rondo.Ragged(np.concatenate([row[skip:] for row in ours.rows()]), (batch.offsets - skip * np.arange(5)).astype(np.int32)),
    }[shape]
    same(batch.logprob_gap(given, version=version, shifted=shifted), by_hand(version))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_torch_tensors(packed: bool, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    batch = handmade.batch()
    told = batch.to_torch(packed=packed)
    ours = trainer(batch, 3) if packed else rondo.Ragged(trainer(batch, 3), batch.offsets).padded(ELSEWHERE)
    assert told.loss_mask.shape == ours.shape
    given = torch.from_numpy(np.array(ours)).to(getattr(torch, dtype)).requires_grad_()  # all shifts are exact in 8 bits
    same(batch.logprob_gap(given, version=3), by_hand(3))
    same(batch.logprob_gap(given[..., 1:], version=3, shifted=True), by_hand(3))


def test_only_tokens_of_the_trainers_version_count() -> None:
    batch = handmade.batch()
    assert batch.logprob_gap(np.zeros(batch.token_count), version=5) is None
    assert batch.logprob_gap(np.full(batch.token_count, math.nan), version=5) is None  # nothing is looked at
    unreported = [{**row, "policy_versions": [{**span, "version": -1} for span in row["policy_versions"]]} for row in handmade.rows()]
    assert handmade.batch(unreported).logprob_gap(np.zeros(20), version=3) is None
    assert handmade.batch([]).logprob_gap(np.zeros(0), version=3) is None
    assert handmade.batch([]).logprob_gap(np.zeros((0, 4)), version=3, shifted=True) is None


def test_a_first_token_that_was_sampled_has_no_shifted_one() -> None:
    batch = handmade.batch([handmade.sample("g000001", 0, "00", 100), handmade.sample("g000001", 1, "000", 200)])
    ours = batch.sampler_logprobs.values.astype(np.float64) + 0.5
    whole, shifted = batch.logprob_gap(ours, version=3), batch.logprob_gap(ours[1:], version=3, shifted=True)
    assert whole is not None and shifted is not None
    assert (whole.tokens, shifted.tokens) == (5, 3) and whole.max_abs == shifted.max_abs == 0.5


def test_micro_batches_and_ranks_merge_to_the_whole() -> None:
    batch = handmade.batch()
    ours = trainer(batch, 3)
    parts = [batch.select(np.array([i])) for i in range(4)]
    gaps = [part.logprob_gap(row, version=3) for part, row in zip(parts, rondo.Ragged(ours, batch.offsets).rows(), strict=True)]
    assert gaps[3] is None
    same(rondo.LogprobGap.merge(gaps), by_hand(3))
    assert rondo.LogprobGap.merge([None]) is None


def test_extreme_values_stay_finite() -> None:
    batch = handmade.batch()
    sampled = batch.sampler_logprobs.values.astype(np.float64)
    for far, divergence in ((800.0, math.expm1(20) - 20), (-800.0, math.expm1(-20) + 20)):
        gap = batch.logprob_gap(sampled + far, version=3)
        assert gap is not None and gap.mean_abs == gap.max_abs == 800 and gap.kl == pytest.approx(divergence)
    for k in range(-50, 51):
        gap = batch.logprob_gap(sampled + k * 1e-9, version=3)
        assert gap is not None and gap.mean_abs <= gap.max_abs
        assert gap.kl >= 0 and gap.kl == pytest.approx((k * 1e-9) ** 2 / 2, rel=1e-3)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -3.4e38])
def test_what_is_no_log_probability_is_named(wrong: float) -> None:
    batch = handmade.batch()
    ours = trainer(batch, 3)
    ours[12] = wrong  # the last token of the third sample
    with pytest.raises(ValueError, match=r"token 2 of sample 2 is (nan|inf|-inf|-3.4e\+38) where the sampler's is -0.375"):
        batch.logprob_gap(ours, version=3)


@pytest.mark.parametrize(
    ("given", "shifted"),
    [
        (np.zeros(19), False),
        (np.zeros(20), True),
        (np.zeros((4, 6)), False),
        (np.zeros((4, 5)), True),
        (np.zeros((3, 7)), False),
        (np.zeros((4, 7, 2)), False),
        (np.zeros(()), False),
        ([np.zeros(7), np.zeros(3), np.zeros(3)], False),
        ([np.zeros(7), np.zeros(3), np.zeros(3), np.zeros(7)], True),
        ([0.0] * 20, False),
    ],
)
def test_other_shapes_are_refused(given: Any, shifted: bool) -> None:
    with pytest.raises(ValueError, match="log-probabilities.*want"):
        handmade.batch().logprob_gap(given, version=3, shifted=shifted)


def test_it_works_without_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from tests import handmade\n"
        "batch = handmade.batch()\n"
        "print(batch.logprob_gap(batch.sampler_logprobs.values, version=3))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=handmade.__file__.rsplit("/", 2)[0])
    assert done.stdout == "LogprobGap(mean_abs=0.0, max_abs=0.0, kl=0.0, tokens=5)\n", done.stderr


def test_a_trainer_states_it_and_the_run_pauses(client: rondo.Client, plane: Plane) -> None:
    limits = {"turns": 32, "tokens": 131072, "timeout": "10m", "tries": 5, "logprob_gap": 0.5}
    run = plane.open_run(client, feeds=[{"name": "trainer", "groups_per_batch": 1}], limits=limits)
    bring(client, run, 1, 2)

    def shown() -> dict[str, Any]:
        told: dict[str, Any] = json.loads(plane.command("run", "show", run, "--json"))
        return told

    with rondo.Feed(run, "trainer", client=client, timeout=60) as feed:
        batch = next(feed)
        feed.consumed(batch)  # taken; the gap is measured a little later
        good = batch.logprob_gap(batch.sampler_logprobs.values + 0.0625, version=0)
        assert good is not None and good.tokens == batch.loss_mask.values.sum()
        feed.consumed(batch, logprob_gap=good)
        feed.consumed(batch, logprob_gap=good)  # said again it is the same fact
        batch = next(feed)
        feed.consumed(batch, logprob_gap=batch.logprob_gap(batch.sampler_logprobs.values - 2.0, version=9))  # there are none of version 9
        with pytest.raises(rondo.IntakeError, match="the batch has only 12 sampled tokens"):
            feed.consumed(batch, logprob_gap=good._replace(tokens=99))
    assert [(g["step"], g["tokens"]) for g in shown()["logprob_gaps"]] == [(1, 12)]
    assert shown()["logprob_gaps"][0]["mean_abs"] == pytest.approx(0.0625)
    with rondo.Feed(run, "trainer", client=client, after=1, timeout=60) as feed:  # killed, and started again
        batch = next(feed)
        feed.consumed(batch, logprob_gap=batch.logprob_gap(batch.sampler_logprobs.values - 2.0, version=0))
    until(lambda: shown()["state"] == "paused", 60, shown)
    assert "2 nats" in shown()["reason"] and "rondo run resume" in shown()["reason"]
    assert [g["step"] for g in shown()["logprob_gaps"]] == [1, 2] and shown()["logprob_gaps"][1]["warning"]
