"""verl: prompts padded on the left, responses on the right, as its agent loops give them.

verl's trainer computes advantages from `rm_scores`, and its `grpo` takes every sample for a rollout: one that was split counts as often
as it has samples. So there are no `rm_scores` unless they are asked for. To train on the advantages of the batch, register
`keep_advantages` and ask for them:

    from verl.trainer.ppo.core_algos import register_adv_est
    register_adv_est("rondo")(keep_advantages)  # and algorithm.adv_estimator=rondo in verl's settings
    DataProto.from_single_dict(to_verl(batch, scores="advantages"))

verl's V1 trainer takes trajectories from TransferQueue: `rondo.verl` puts there what `to_verl_trajectories` gives.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..batch import Batch
from .layout import cut, left_padded, tensors, whole_experts, whole_rollouts, without_images

__all__ = ["keep_advantages", "to_verl", "to_verl_trajectories"]


def to_verl(
    batch: Batch,
    *,
    pad_id: int = 0,
    scores: Literal["advantages", "rewards"] | None = None,
    reference: str | None = None,
    experts: bool = False,
) -> dict[str, Any]:
    """torch tensors for `DataProto.from_single_dict`, for B samples, P and R the longest prompt and response.

    prompts int64 [B, P]; responses, response_mask (1: sampled, 0: tool or padding) int64 [B, R]; input_ids, attention_mask, position_ids
    int64 [B, P + R]; rollout_log_probs, advantages, returns float32 [B, R]. uid (numpy, non-tensor): the group, object [B].

    scores: what rm_scores, float32 [B, R], holds. "advantages": the advantage of each token, for the estimator `keep_advantages`.
    "rewards": the reward, on the last token of the response, for an estimator of verl's; ValueError where a rollout has several samples.
    reference: a teacher of the batch, whose log-probabilities of the response are ref_log_prob, float32 [B, R].
    experts: routed_experts, int16 [B, P + R, layers, top_k], for router replay (R3); 0 for padding and each sample's last token. They are
    read from the object store.
    """
    without_images(batch)
    before, after = cut(batch, batch.tokens)
    prompts, responses, lengths = left_padded(before, pad_id), after.padded(pad_id), after.lengths
    response_present = np.arange(responses.shape[1]) < lengths[:, None]
    prompt_present = np.arange(prompts.shape[1]) >= prompts.shape[1] - batch["prompt_length"][:, None]
    attention = np.concatenate([prompt_present, response_present], 1).astype(np.int64)
    advantages = cut(batch, batch.advantages)[1].padded()
    told = {
        "prompts": prompts.astype(np.int64),
        "responses": responses.astype(np.int64),
        "response_mask": cut(batch, batch.loss_mask)[1].padded().astype(np.int64),
        "input_ids": np.concatenate([prompts, responses], 1).astype(np.int64),
        "attention_mask": attention,
        "position_ids": np.maximum(np.cumsum(attention, 1) - 1, 0),
        "rollout_log_probs": cut(batch, batch.sampler_logprobs)[1].padded(),
        "advantages": advantages,
        "returns": advantages,
        "uid": batch["group_id"].astype(object),
    }
    if experts:
        told["routed_experts"] = _experts(batch, told["input_ids"].shape)
    if reference is not None:
        told["ref_log_prob"] = cut(batch, batch.teacher_logprobs(reference))[1].padded()
    if scores == "advantages":
        told["rm_scores"] = advantages
    elif scores == "rewards":
        whole_rollouts(batch, "verl")
        told["rm_scores"] = np.zeros(responses.shape, np.float32)
        rows = np.flatnonzero(lengths)
        told["rm_scores"][rows, lengths[rows] - 1] = batch.rewards[rows]
    elif scores is not None:
        raise ValueError(f"scores is {scores!r}: use 'advantages', 'rewards' or None")
    return tensors(told)


def to_verl_trajectories(batch: Batch, *, scores: Literal["advantages", "rewards"], experts: bool = False) -> list[dict[str, Any]]:
    """The fields of a trajectory of verl's V1 trainer for each sample of P prompt and R response tokens; torch tensors without padding.

    prompts int64 [P]; responses, response_mask, loss_mask (1: sampled) int64 [R]; rollout_log_probs, rm_scores float32 [R]; input_ids,
    position_ids int64 [P + R]. uid: the group; num_turns: the model's; extra_fields: the rollout's id and its reward.
    scores and experts (routed_experts, int16 [P + R, layers, top_k]) are as for `to_verl`.
    """
    without_images(batch)
    given = to_verl(batch, scores=scores, experts=experts)
    given["loss_mask"] = given["response_mask"]
    width = given["prompts"].shape[1]
    names, turns = batch.table.column("rollout_id").to_pylist(), list(batch.token_turns.rows())
    rows = []
    for i, (before, length) in enumerate(zip(batch["prompt_length"].tolist(), batch.lengths.tolist(), strict=True)):
        prompt, response, whole = slice(width - before, width), slice(length - before), slice(width - before, width - before + length)
        parts = {
            "prompts": prompt,
            **dict.fromkeys(("responses", "response_mask", "loss_mask", "rollout_log_probs", "rm_scores"), response),
            **dict.fromkeys(("input_ids", "position_ids", *(["routed_experts"] if experts else [])), whole),
        }
        row: dict[str, Any] = {name: given[name][i, part].clone() for name, part in parts.items()}
        row["uid"], row["num_turns"] = given["uid"][i], len(np.unique(turns[i][turns[i] >= 0]))
        row["extra_fields"] = {"rollout_id": names[i], "reward": float(batch.rewards[i])}
        rows.append(row)
    return rows


def _experts(batch: Batch, shape: tuple[int, ...]) -> Any:
    column = whole_experts(batch)
    if column.values.size and column.values.max() > np.iinfo(np.int16).max:
        raise ValueError("verl's routed_experts are int16, and a token of this batch went to an expert beyond that")
    padded = np.zeros((*shape, *column.values.shape[1:]), np.int16)
    before = int(batch["prompt_length"].max()) if len(batch) else 0
    for i, skip in enumerate(batch["prompt_length"].tolist()):
        rows, _ = column.row(i)
        padded[i, before - skip : before - skip + len(rows)] = rows
    return padded


def keep_advantages(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """An advantage estimator of verl that takes each token's score for its advantage: advantages and returns, float32 [B, R]."""
    kept = token_level_rewards * response_mask
    return kept, kept
