"""The alignment of every adapter, against a batch written by hand.

The four samples are ..00.11 (tokens 100 on), ..0 (200 on), .00 (300 on) and ....111 (400 on): a digit is a sampled token. The
log-probability of token t is -(t + 1) / 8; advantages are 0.5, -0.5, 1 and 1; the last two samples are of one rollout.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import rondo
from rondo.adapters.areal import to_areal, to_areal_rollouts
from rondo.adapters.atropos import to_atropos
from rondo.adapters.layout import one_advantage
from rondo.adapters.openrlhf import to_openrlhf
from rondo.adapters.prime_rl import to_prime_rl, to_prime_rl_samples
from rondo.adapters.skyrl import to_skyrl, to_skyrl_generator
from rondo.adapters.slime import to_slime
from rondo.adapters.tinker import to_tinker
from rondo.adapters.trl import to_trl, to_trl_samples
from rondo.adapters.verl import keep_advantages, to_verl, to_verl_trajectories

from . import handmade


@pytest.fixture
def batch() -> rondo.Batch:
    return handmade.batch(batch_sampled_tokens="30")


def lists(told: dict[str, Any]) -> dict[str, Any]:
    return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in told.items()}


def test_verl_pads_prompts_on_the_left_and_responses_on_the_right(batch: rondo.Batch) -> None:
    torch = pytest.importorskip("torch")
    told = to_verl(batch, pad_id=9, scores="advantages")
    assert told["prompts"].dtype == told["responses"].dtype == told["position_ids"].dtype == torch.int64
    assert isinstance(told["uid"], np.ndarray), "verl keeps what is no tensor apart"
    assert keep_advantages(told["rm_scores"], told["response_mask"])[0].tolist() == told["advantages"].tolist()
    told = lists(told)
    assert told["prompts"] == [[9, 9, 100, 101], [9, 9, 200, 201], [9, 9, 9, 300], [400, 401, 402, 403]]
    assert told["responses"] == [[102, 103, 104, 105, 106], [202, 9, 9, 9, 9], [301, 302, 9, 9, 9], [404, 405, 406, 9, 9]]
    assert told["response_mask"] == [[1, 1, 0, 1, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    assert told["input_ids"][2] == [9, 9, 9, 300, 301, 302, 9, 9, 9]
    assert told["attention_mask"][2] == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert told["position_ids"][2] == [0, 0, 0, 0, 1, 2, 2, 2, 2]
    assert told["rollout_log_probs"][0] == [-3 / 8, -4 / 8, 0, -6 / 8, -7 / 8]
    assert told["advantages"] == told["returns"] and told["advantages"][0] == [0.5, 0.5, 0, 0.5, 0.5]
    assert told["rm_scores"] == told["advantages"] and "rm_scores" not in to_verl(batch)
    assert lists(to_verl(whole(), scores="rewards"))["rm_scores"] == [[0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    assert told["uid"] == ["g000001", "g000001", "g000002", "g000002"]


def test_trajectories_of_verl_have_no_padding(batch: rondo.Batch) -> None:
    torch = pytest.importorskip("torch")
    rows = to_verl_trajectories(batch, scores="advantages")
    assert rows[0]["prompts"].dtype == rows[0]["loss_mask"].dtype == torch.int64 and rows[0]["rm_scores"].dtype == torch.float32
    told = [lists(row) for row in rows]
    assert [row["prompts"] for row in told] == [[100, 101], [200, 201], [300], [400, 401, 402, 403]]
    assert [row["responses"] for row in told] == [[102, 103, 104, 105, 106], [202], [301, 302], [404, 405, 406]]
    assert told[0]["response_mask"] == told[0]["loss_mask"] == [1, 1, 0, 1, 1]
    assert told[0]["rollout_log_probs"] == [-3 / 8, -4 / 8, 0, -6 / 8, -7 / 8] and told[0]["rm_scores"] == [0.5, 0.5, 0, 0.5, 0.5]
    assert told[3]["input_ids"] == [400, 401, 402, 403, 404, 405, 406] and told[3]["position_ids"] == [0, 1, 2, 3, 4, 5, 6]
    assert [row["uid"] for row in told] == ["g000001", "g000001", "g000002", "g000002"]
    assert [row["num_turns"] for row in told] == [2, 1, 1, 1]
    assert told[1]["extra_fields"] == {"rollout_id": "g000001-1", "reward": 0}
    assert [row["rm_scores"].tolist() for row in to_verl_trajectories(whole(), scores="rewards")] == [[0, 0, 0, 0, 1], [0]]


def test_trl_takes_prompts_and_completions_or_samples(batch: rondo.Batch) -> None:
    torch = pytest.importorskip("torch")
    told = to_trl(batch, pad_id=9)
    assert told["old_per_token_logps"].dtype == told["advantages"].dtype == torch.float32
    told = lists(told)
    assert told["prompt_ids"][1] == [9, 9, 200, 201] and told["prompt_mask"][1] == [0, 0, 1, 1]
    assert told["completion_ids"][0] == [102, 103, 104, 105, 106] and told["completion_ids"][1] == [202, 9, 9, 9, 9]
    assert told["completion_mask"][0] == [1] * 5 and told["tool_mask"][0] == [1, 1, 0, 1, 1]
    assert told["completion_mask"][1] == told["tool_mask"][1] == [1, 0, 0, 0, 0]
    assert told["old_per_token_logps"] == told["sampling_per_token_logps"]
    assert told["old_per_token_logps"][1] == [-3 / 8, 0, 0, 0, 0] and told["advantages"][1] == [-0.5, 0, 0, 0, 0]
    assert told["num_items_in_batch"] == 30


def test_trl_queues_samples(batch: rondo.Batch) -> None:
    sample = to_trl_samples(batch)[0]
    assert sample["input_ids"].dtype == sample["completion_mask"].dtype == np.int64 and sample["old_log_probs"].dtype == np.float32
    first = lists(sample)
    assert first["input_ids"] == [100, 101, 102, 103, 104, 105, 106] and first["completion_mask"] == [0, 0, 1, 1, 0, 1, 1]
    assert first["old_log_probs"] == [0, 0, -3 / 8, -4 / 8, 0, -6 / 8, -7 / 8]
    assert (first["advantage"], first["model_version"], first["group_id"]) == (0.5, 3, 0)


def test_samples_of_trl_cannot_be_told_of_advantages_of_turns() -> None:
    samples = handmade.rows()
    samples[0]["advantages"] = [0, 0, 0.5, 0.5, 0, 0.75, 0.75]
    with pytest.raises(ValueError, match="tokens of one sample have different advantages"):
        to_trl_samples(handmade.batch(samples))


def whole() -> rondo.Batch:
    """Rollouts of one sample each."""
    return handmade.batch(handmade.rows()[:2])


@pytest.mark.parametrize("adapter", [lambda b: to_verl(b, scores="rewards"), to_areal_rollouts, to_skyrl_generator])
def test_a_split_rollout_does_not_count_twice_where_a_trainer_computes_advantages(adapter: Any, batch: rondo.Batch) -> None:
    pytest.importorskip("torch")
    adapter(whole())
    with pytest.raises(ValueError, match="would count its reward once for each"):
        adapter(batch)


def test_prime_rl_packs() -> None:
    samples = handmade.rows()
    for row, number in zip(samples, [1, 0, 1, 0], strict=True):
        row["micro_batch"] = number
    first, second, empty = (lists(m) for m in to_prime_rl(handmade.batch(samples, micro_batches="3")))
    assert list(first)[:9] == [
        *("input_ids", "loss_mask", "advantages", "inference_logprobs", "position_ids"),
        *("sequence_lengths", "temperatures", "env_names", "seq_lens"),
    ]
    assert first["input_ids"] == [200, 201, 202, 400, 401, 402, 403, 404, 405, 406]
    assert first["position_ids"] == [0, 1, 2, 0, 1, 2, 3, 4, 5, 6]
    assert first["sequence_lengths"] == first["seq_lens"] == [3, 7]
    assert first["temperatures"] == [0.5] * 3 + [1] * 7 and first["env_names"] == ["mend"] * 10
    assert second["loss_mask"] == [False, False, True, True, False, True, True, False, True, True]
    assert second["inference_logprobs"] == [0, 0, -3 / 8, -4 / 8, 0, -6 / 8, -7 / 8, 0, -2 / 8, -3 / 8]
    assert second["advantages"] == [0, 0, 0.5, 0.5, 0, 0.5, 0.5, 0, 1, 1]
    assert json.loads(json.dumps(first)) == first, "msgspec encodes lists and numbers, not arrays"
    assert empty["loss_mask"] == [False] and empty["sequence_lengths"] == [1]
    sample = to_prime_rl_samples(handmade.batch(samples))[1]
    assert list(sample) == ["token_ids", "mask", "logprobs", "temperatures", "env_name", "advantages"]
    assert sample["token_ids"] == [200, 201, 202] and sample["temperatures"] == [0.5] * 3 and sample["logprobs"] == [0, 0, -3 / 8]


def test_slime_speaks_of_responses(batch: rondo.Batch) -> None:
    told = to_slime(batch)
    assert told["tokens"][1] == [200, 201, 202]
    assert told["response_lengths"] == [5, 1, 2, 3]
    assert told["loss_masks"] == [[1, 1, 0, 1, 1], [1], [1, 1], [1, 1, 1]]
    assert told["rollout_log_probs"][0] == [-3 / 8, -4 / 8, 0, -6 / 8, -7 / 8]
    assert told["rewards"] == [0.5, -0.5, 1, 1] and told["raw_reward"] == [1, 0, 1, 1]
    assert told["truncated"] == [0, 1, 0, 0] and told["sample_indices"] == [0, 1, 2, 3]
    assert told["rollout_ids"] == [0, 1, 2, 2] and told["rollout_mask_sums"] == [4, 1, 5, 5]


def test_areal_speaks_of_the_next_token(batch: rondo.Batch) -> None:
    torch = pytest.importorskip("torch")
    told = to_areal(batch, pad_id=9)
    assert told["input_ids"].dtype == told["versions"].dtype == told["turn_ids"].dtype == torch.int32
    assert told["attention_mask"].dtype == torch.bool
    told = lists(told)
    assert told["input_ids"][2] == [300, 301, 302, 9, 9, 9, 9]
    assert told["loss_mask"][0] == [0, 1, 1, 0, 1, 1, 0]
    assert told["versions"][0] == [-1, 3, 3, -1, 4, 4, -1] and told["turn_ids"][0] == [-1, 0, 0, -1, 1, 1, -1]
    assert told["logprobs"] == told["prox_logp"] and told["logprobs"][2] == [-2 / 8, -3 / 8, 0, 0, 0, 0, 0]
    assert told["advantages"][0] == [0, 0.5, 0.5, 0, 0.5, 0.5, 0] and told["rewards"] == [1, 0, 1, 1]


def test_areals_rollouts_are_not_shifted() -> None:
    pytest.importorskip("torch")
    told = lists(to_areal_rollouts(whole(), pad_id=9))
    assert told["versions"] == [[-1, -1, 3, 3, -1, 4, 4], [-1, -1, 3, -1, -1, -1, -1]]
    assert told["loss_mask"][0] == [0, 0, 1, 1, 0, 1, 1] and told["logprobs"][1] == [0, 0, -3 / 8, 0, 0, 0, 0]
    assert "advantages" not in told


def test_skyrl_aligns_on_the_right(batch: rondo.Batch) -> None:
    pytest.importorskip("torch")
    told = lists(to_skyrl(batch, pad_id=9))
    assert told["sequences"][1] == [9, 9, 9, 9, 200, 201, 202]
    assert told["attention_mask"][1] == [0, 0, 0, 0, 1, 1, 1]
    assert told["response_mask"] == [[1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]
    assert told["loss_mask"][0] == [1, 1, 0, 1, 1] and told["loss_mask"][2] == [0, 0, 0, 1, 1]
    assert told["rollout_logprobs"][2] == [0, 0, 0, -2 / 8, -3 / 8]
    assert told["advantages"][1] == [0, 0, 0, 0, -0.5]
    assert told["rewards"] == [[0, 0, 0, 0, r] for r in (1, 0, 1, 1)]
    for row, mask in zip(told["sequences"], told["loss_mask"], strict=True):  # the last columns are the response's
        assert [t for t, m in zip(row[-5:], mask, strict=True) if m] in ([102, 103, 105, 106], [202], [301, 302], [404, 405, 406])
    made = to_skyrl_generator(batch, step_wise=True)
    assert made["prompt_token_ids"][3] == [400, 401, 402, 403] and made["response_ids"][3] == [404, 405, 406]
    named = made["trajectory_ids"][1]
    assert (named.instance_id, named.repetition_id, named.to_string()) == ("g000001", 1, "g000001_1")
    assert made["is_last_step"] == [True, True, False, True] and made["stop_reasons"][1] == "length"


def test_openrlhf_shifts_actions(batch: rondo.Batch) -> None:
    pytest.importorskip("torch")
    told = lists(to_openrlhf(batch, pad_id=9))
    assert told["sequences"][1] == [200, 201, 202, 9, 9, 9, 9] and told["attention_mask"][1] == [1, 1, 1, 0, 0, 0, 0]
    assert told["action_mask"][0] == [False, True, True, False, True, True]
    assert told["action_mask"][1] == [False, True, False, False, False, False]
    assert told["rollout_log_probs"][0] == [0, -3 / 8, -4 / 8, 0, -6 / 8, -7 / 8]
    assert told["advantages"][2] == [1, 1, 0, 0, 0, 0] and told["returns"] == told["advantages"]
    assert told["response_length"] == [5, 1, 2, 3] and told["total_length"] == [7, 3, 3, 7]
    assert told["truncated"] == [0, 1, 0, 0] and told["rewards"] == [1, 0, 1, 1]


def test_tinker_shifts_targets(batch: rondo.Batch) -> None:
    told = to_tinker(batch)
    first, inputs = told[0]["model_input"], lists(told[0]["loss_fn_inputs"])
    assert first == [100, 101, 102, 103, 104, 105]
    assert inputs["target_tokens"] == [101, 102, 103, 104, 105, 106]
    assert told[0]["mask"].tolist() == [0, 1, 1, 0, 1, 1] and "mask" not in inputs, "Tinker's losses know no mask"
    assert inputs["logprobs"] == [0, -3 / 8, -4 / 8, 0, -6 / 8, -7 / 8]
    assert inputs["advantages"] == [0, 0.5, 0.5, 0, 0.5, 0.5]
    assert [len(d["model_input"]) for d in told] == [6, 2, 2, 6]


def test_atropos_marks_what_was_not_sampled(batch: rondo.Batch) -> None:
    first, second = to_atropos(batch)
    assert first["tokens"] == [[100, 101, 102, 103, 104, 105, 106], [200, 201, 202]]
    assert first["masks"] == [[-100, -100, 102, 103, -100, 105, 106], [-100, -100, 202]]
    assert first["scores"] == [1, 0] and second["scores"] == [1, 1]
    assert first["inference_logprobs"][1] == [1, 1, -3 / 8]
    assert first["overrides"] == [{"temperature": 1}, {"temperature": 0.5}] and first["generation_params"] is None
    assert second["generation_params"] == {"temperature": 1}
    assert second["advantages"] == [[0, 1, 1], [0, 0, 0, 0, 1, 1, 1]]


def test_a_sample_of_which_nothing_was_sampled(batch: rondo.Batch) -> None:
    lone = handmade.batch([handmade.sample("g000001", 0, "...", 100), handmade.sample("g000001", 1, ".0", 200)])
    assert one_advantage(lone).tolist() == [0, 0.5]
    pytest.importorskip("torch")
    assert lists(to_verl(lone))["responses"] == [[0], [201]]
    assert to_slime(lone)["response_lengths"] == [0, 1]
    assert lists(to_openrlhf(lone))["response_length"] == [0, 1]


@pytest.mark.parametrize("adapter", [to_verl, to_trl, to_slime, to_areal, to_skyrl, to_openrlhf, to_tinker, to_atropos, to_prime_rl])
def test_an_empty_batch_and_a_part_of_one(adapter: Any, batch: rondo.Batch) -> None:
    pytest.importorskip("torch")
    adapter(batch.select(np.zeros(0, np.intp)))
    assert repr(adapter(batch.select(np.array([2, 3])))) == repr(adapter(handmade.batch(handmade.rows()[2:], batch_sampled_tokens="30")))
