"""prime-rl: micro-batches of samples one after the other, with values for every token; nothing is shifted.

Its structs go over the wire as msgpack, which knows lists and no arrays: `MicroBatch(**fields)` takes what is given here as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..batch import Batch
from .layout import positions, whole_experts, without_images

__all__ = ["to_prime_rl", "to_prime_rl_samples"]


def to_prime_rl(batch: Batch, *, reference: str | None = None, experts: bool = False) -> list[dict[str, Any]]:
    """The micro-batches of this rank, as many as on every other; each has the fields of a MicroBatch, in their order on the wire.

    For n tokens of m samples, lists that msgspec can encode: input_ids (integers), loss_mask (booleans), advantages, inference_logprobs,
    position_ids (from 0 in every sample), temperatures, env_names, all of n entries; sequence_lengths and seq_lens, m integers. An empty
    micro-batch, which only keeps the ranks in step, becomes one token that is not trained on.

    reference: a teacher of the batch, whose log-probabilities are ref_logprobs, n floats.
    experts: routed_experts, (bytes, shape [n, layers, top_k], dtype), for router replay; 0 for each sample's last token.
    """
    without_images(batch)
    return [_with_experts(_with_reference(_micro_batch(part), part, reference), part, experts) for part in batch.micro_batches()]


def _packed(rows: Any) -> tuple[bytes, list[int], str]:
    return np.ascontiguousarray(rows).tobytes(), list(rows.shape), str(rows.dtype)


def _with_experts(fields: dict[str, Any], part: Batch, experts: bool) -> dict[str, Any]:
    if not experts or part.token_count == 0:  # the token of an empty micro-batch has none
        return fields
    return {**fields, "routed_experts": _packed(whole_experts(part).values)}


def _with_reference(fields: dict[str, Any], part: Batch, reference: str | None) -> dict[str, Any]:
    if reference is None:
        return fields
    return {**fields, "ref_logprobs": part.teacher_logprobs(reference).values.tolist() or [0.0]}


def _micro_batch(part: Batch) -> dict[str, Any]:
    lengths = part.lengths.astype(np.int64)
    if part.token_count == 0:
        return _fields([0], [False], [0.0], [0.0], [0], [1], [1.0], [""])
    return _fields(
        part.tokens.values.tolist(),
        part.loss_mask.values.tolist(),
        part.advantages.values.tolist(),
        part.sampler_logprobs.values.tolist(),
        positions(part.tokens).tolist(),
        lengths.tolist(),
        np.repeat(part["temperature"], lengths).tolist(),
        np.repeat(part["task"], lengths).tolist(),
    )


def _fields(
    ids: list[int],
    mask: list[bool],
    advantages: list[float],
    logprobs: list[float],
    places: list[int],
    lengths: list[int],
    temperatures: list[float],
    names: list[str],
) -> dict[str, Any]:
    return {
        "input_ids": ids,
        "loss_mask": mask,
        "advantages": advantages,
        "inference_logprobs": logprobs,
        "position_ids": places,
        "sequence_lengths": lengths,
        "temperatures": temperatures,
        "env_names": names,
        "seq_lens": list(lengths),
    }


def to_prime_rl_samples(batch: Batch, *, reference: str | None = None, experts: bool = False) -> list[dict[str, Any]]:
    """The fields of a TrainingSample for each sample, for its own packer: token_ids, mask, logprobs, temperatures, env_name, advantages.

    reference: a teacher of the batch, whose log-probabilities of all tokens are ref_logprobs. experts: routed_experts, as in to_prime_rl.
    """
    without_images(batch)
    routed = whole_experts(batch) if experts else None
    rows = zip(batch.tokens.rows(), batch.loss_mask.rows(), batch.sampler_logprobs.rows(), batch.advantages.rows(), strict=True)
    said = None if reference is None else batch.teacher_logprobs(reference)
    temperatures, names = batch["temperature"].tolist(), batch["task"].tolist()
    return [
        {
            "token_ids": ids.tolist(),
            "mask": mask.tolist(),
            "logprobs": logprobs.tolist(),
            "temperatures": [temperatures[i]] * len(ids),
            "env_name": names[i],
            "advantages": advantages.tolist(),
            **({} if said is None else {"ref_logprobs": said.row(i).tolist()}),
            **({} if routed is None else {"routed_experts": _packed(routed.row(i)[0])}),
        }
        for i, (ids, mask, logprobs, advantages) in enumerate(rows)
    ]
