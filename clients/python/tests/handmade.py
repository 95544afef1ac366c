"""Batch files written by hand, as schemas/arrow.md says."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa

import rondo

VERSIONS = pa.list_(pa.struct([("start", pa.int32()), ("length", pa.int32()), ("version", pa.int64()), ("stale", pa.bool_())]))
TURNS = pa.list_(pa.struct([("start", pa.int32()), ("length", pa.int32()), ("turn", pa.int32())]))

SCHEMA = pa.schema(
    [
        *[(name, pa.string()) for name in ("run_id", "group_id", "rollout_id", "task", "stop_reason")],
        *[(name, pa.int32()) for name in ("sample_index", "samples_in_rollout", "prompt_length")],
        ("truncated", pa.bool_()),
        ("text_only", pa.bool_()),
        ("tokens", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.bool_())),
        ("sampler_logprobs", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),
        ("policy_versions", VERSIONS),
        ("reward", pa.float32()),
        ("reward_components", pa.string()),
        ("dispatch_version", pa.int64()),
        ("staleness", pa.int32()),
        ("rollout_sampled", pa.int32()),
        ("micro_batch", pa.int32()),
        ("temperature", pa.float32()),
        ("turns", TURNS),
        ("annotations", pa.string()),
    ]
)


def sample(group: str, member: int, mask: str, first: int, **changes: Any) -> dict[str, Any]:
    """A row from its mask: a digit is the turn that sampled the token, a dot a token that was not sampled.

    Token t has the id first + t, and where sampled log-probability -(t + 1) / 8 and the row's advantage.
    """
    sampled = [c != "." for c in mask]
    spans = [(t, int(c)) for t, c in enumerate(mask) if c != "."]
    runs: list[dict[str, int]] = []
    for t, turn in spans:
        if runs and runs[-1]["turn"] == turn and runs[-1]["start"] + runs[-1]["length"] == t:
            runs[-1]["length"] += 1
        else:
            runs.append({"start": t, "length": 1, "turn": turn})
    advantage = changes.pop("advantage", 0.5)
    row = {
        "run_id": "mine",
        "group_id": group,
        "rollout_id": f"{group}-{member}",
        "task": "mend",
        "stop_reason": "finished",
        "sample_index": 0,
        "samples_in_rollout": 1,
        "prompt_length": sampled.index(True) if any(sampled) else len(mask),
        "truncated": False,
        "text_only": False,
        "tokens": [first + t for t in range(len(mask))],
        "loss_mask": sampled,
        "sampler_logprobs": [-(t + 1) / 8 if s else 0.0 for t, s in enumerate(sampled)],
        "advantages": [advantage if s else 0.0 for s in sampled],
        "policy_versions": [{"start": r["start"], "length": r["length"], "version": 3 + r["turn"], "stale": False} for r in runs],
        "reward": 1.0,
        "reward_components": "",
        "dispatch_version": 3,
        "staleness": 1,
        "rollout_sampled": sum(sampled),
        "micro_batch": -1,
        "temperature": 1.0,
        "turns": runs,
        "annotations": "",
    }
    return {**row, **changes}


def rows() -> list[dict[str, Any]]:
    """Two groups: a sample of two turns, a truncated one, a rollout of two samples."""
    return [
        sample("g000001", 0, "..00.11", 100),
        sample("g000001", 1, "..0", 200, advantage=-0.5, reward=0.0, truncated=True, stop_reason="length", temperature=0.5),
        sample("g000002", 0, ".00", 300, advantage=1.0, samples_in_rollout=2, rollout_sampled=5),
        sample("g000002", 0, "....111", 400, advantage=1.0, samples_in_rollout=2, sample_index=1, rollout_sampled=5),
    ]


def file(samples: list[dict[str, Any]], schema: pa.Schema = SCHEMA, **metadata: str) -> bytes:
    told = {
        "kind": "batch",
        "schema_version": "1",
        "run_id": "mine",
        "feed": "trainer",
        "step": "7",
        "rank": "0",
        "ranks": "1",
        "micro_batches": "0",
    }
    record = pa.RecordBatch.from_pylist(samples, schema=schema.with_metadata({**told, **metadata}))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, record.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(record)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def batch(samples: list[dict[str, Any]] | None = None, **metadata: str) -> rondo.Batch:
    return rondo.open_batch(file(rows() if samples is None else samples, **metadata))


def taught(samples: list[dict[str, Any]] | None = None, **metadata: str) -> rondo.Batch:
    """The batch with a teacher: of token t it says -t / 4, and 0 of the first one; and with another that says -t."""
    samples = rows() if samples is None else samples
    schema = SCHEMA
    for name, scale in (("reference", 0.25), ("big-2", 1.0)):
        schema = schema.append(pa.field(f"logprobs_{name}", pa.list_(pa.float32())))
        for row in samples:
            row[f"logprobs_{name}"] = [-t * scale for t in range(len(row["tokens"]))]
    return rondo.open_batch(file(samples, schema, teachers="reference,big-2", **metadata))


def hinted(samples: list[dict[str, Any]] | None = None, **metadata: str) -> rondo.Batch:
    """The batch with the judge's hints: about tokens 2 and 3 of the first row and token 6 of the last, of which the teacher says -t / 2."""
    samples = rows() if samples is None else samples
    schema = SCHEMA.append(pa.field("hints", pa.string()))
    for name in ("reference", "own"):
        schema = schema.append(pa.field(f"logprobs_{name}", pa.list_(pa.float32())))
    for i, row in enumerate(samples):
        spans = [(0, 2, 2, 1)] if i == 0 else [(1, 6, 1, 4)] if i == len(samples) - 1 else []
        given = [{"turn": n, "start": s, "length": m, "at": at, "text": "Look first.", "tokens": [9] if i else []} for n, s, m, at in spans]
        row["hints"] = json.dumps(given) if given else ""
        row["logprobs_reference"] = [-t / 4 for t in range(len(row["tokens"]))]
        row["logprobs_own"] = [-t / 2 if any(s <= t < s + m for _, s, m, _ in spans) else math.nan for t in range(len(row["tokens"]))]
    told = {"teachers": "reference,own", "hints": "judge", "hinted": "own", **metadata}
    return rondo.open_batch(file(samples, schema, **told))
