"""Token ids and log-probabilities, by the cases that the plane is held to, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rondo.env.environment import components
from rondo.teaching import values_of
from rondo.tokens import LEAST_SCORED, logprobs_of, mask_of, token_ids_of

CASES = json.loads((Path(__file__).parents[3] / "storage/tokencheck/testdata/tokens.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_what_the_plane_says(case: dict[str, Any]) -> None:
    given = [float(v) if isinstance(v, str) else v for v in case["logprobs"]]

    def check() -> list[float]:
        ids, logprobs = token_ids_of(case["ids"]), logprobs_of(given)
        if len(ids) != len(logprobs):
            raise ValueError(f"{len(ids)} token ids, {len(logprobs)} log-probabilities")
        assert ids.dtype == np.int32 and ids.tolist() == case["ids"] and logprobs.dtype == np.float32
        values: list[float] = logprobs.tolist()
        return values

    if "wrong" in case:
        with pytest.raises(ValueError, match=case["wrong"]):
            check()
    else:
        assert check() == pytest.approx(case.get("rounded", given))


def test_whole_numbers_of_other_types_are_ids() -> None:
    assert token_ids_of([np.int64(3), np.uint8(4)]).tolist() == [3, 4]
    assert token_ids_of(np.array([3, 4], np.uint16)).tolist() == token_ids_of(range(3, 5)).tolist() == [3, 4]
    assert token_ids_of(np.array([], np.float64)).tolist() == []
    arrays = (np.array([1, 2.0]), np.array([[1]]), np.array([True]), np.array([1, "2"], object))
    for wrong in (*arrays, [np.bool_(True)], [np.float32(1)], "12", 5):
        with pytest.raises(ValueError, match="token|dimensions|no list"):
            token_ids_of(wrong)
    assert mask_of([0, True]).tolist() == [False, True]
    for mask in ([2], ["x"], [0.5], [None]):
        with pytest.raises(ValueError, match="mask"):
            mask_of(mask)


def test_only_tokens_that_need_one_have_a_logprob() -> None:
    assert logprobs_of([-9999.0, -1.0], np.array([False, True])).tolist() == [-9999.0, -1.0]
    assert logprobs_of([-500.0], least=LEAST_SCORED).tolist() == [-500.0]
    with pytest.raises(ValueError, match="token 0 has -9999"):
        logprobs_of([-9999.0], least=LEAST_SCORED)


def test_a_text_is_no_reward() -> None:
    assert components({"a": True, "b": np.float32(0.5)}, 1) == {"components": {"a": 1.0, "b": 0.5}, "reward": 1.0}
    for wrong in ("1", b"1", "1_0", float("nan"), 1e10):
        with pytest.raises(ValueError, match="number"):
            components({"a": wrong})
        with pytest.raises(ValueError, match="number"):
            components({}, wrong)


def test_a_text_is_no_logprob_of_a_teacher() -> None:
    ids = np.array([4, 5, 6], np.int32)
    assert values_of(0, ids, lambda _: [None, -1, -0.5]).tolist() == values_of(0, ids, lambda _: [-1.0, -0.5]).tolist() == [0.0, -1.0, -0.5]
    for wrong in (
        ["-1", "-0.5"],
        [False, True],
        [None, "-1", -0.5],
        [None, True, -0.5],
        np.array([b"1", b"2"]),
        [-1.0, float("nan")],
        [1j, 0],
    ):
        with pytest.raises(ValueError, match="sample 7"):
            values_of(7, ids, lambda _, wrong=wrong: wrong)  # type: ignore[misc]
