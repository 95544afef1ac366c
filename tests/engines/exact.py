"""Holds what is on the log to transformers: the same weights in float32 give the same tokens these log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

#: How far float32 may be from float32 that another program computed in another order. It is some 1e-5 in practice.
CLOSE = 1e-3


def model(folder: Path) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def samples(turns: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The turns of a rollout by its samples."""
    found: list[list[dict[str, Any]]] = []
    for turn in turns:
        if turn.get("new_segment"):
            found.append([])
        found[-1].append(turn)
    return found


def gap(rollouts: dict[str, list[dict[str, Any]]], of: Callable[[int], Qwen3ForCausalLM], temperature: float = 1) -> tuple[float, int]:
    """The largest difference of a log-probability on the log from the one that the token's own version gives it, and of how many tokens."""
    most, count = 0.0, 0
    for turns in rollouts.values():
        for sample in samples(turns):
            ids: list[int] = []
            for turn in sample:
                ids += turn.get("prompt_delta", [])
                at, ids = len(ids), ids + turn["token_ids"]
                spans = turn.get("version_spans") or [{"version": turn["policy_version"], "start": 0, "end": len(turn["token_ids"])}]
                for span in spans:
                    begin, end = at + span["start"], at + span["end"]
                    with torch.inference_mode():
                        row = (of(span["version"])(torch.tensor([ids[:end]])).logits[0, begin - 1 : end - 1] / temperature).log_softmax(-1)
                    own = row.gather(1, torch.tensor(ids[begin:end])[:, None])[:, 0]
                    said = torch.tensor(turn["logprobs"][span["start"] : span["end"]])
                    most, count = max(most, (own - said).abs().max().item()), count + len(said)
    assert count, "no token was sampled"
    return most, count
