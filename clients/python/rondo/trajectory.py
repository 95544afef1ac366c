"""Trajectories of rollouts that ran elsewhere, as the Arrow files that Rondo keeps (schemas/arrow.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from .tokens import logprobs_of, mask_of, token_ids_of

__all__ = ["Message", "Trajectory", "encode"]


@dataclass
class Message:
    """One message of a conversation, with the tokens that it added to it; prompts are not repeated from turn to turn.

    The tokens of all messages, one after the other, are the training sample: those of a message with role `assistant` were sampled,
    the others not, unless loss_mask says otherwise.
    """

    #: system, user, assistant or tool; prompt: no message, but the tokens of a prompt that begins a new segment.
    role: str
    content: str = ""
    #: Token ids, T of them; none for a message whose tokens another one carries.
    token_ids: Sequence[int] = ()
    #: The sampler's natural log-probability of each token, T of them; needed where tokens were sampled, 0 elsewhere.
    logprobs: Sequence[float] | None = None
    #: T booleans, true where the model sampled the token; None: all of an assistant's, none of the others'.
    loss_mask: Sequence[bool] | None = None
    #: Calls that the model asked for, each {"id", "name", "arguments"}.
    tool_calls: Sequence[Mapping[str, Any]] = ()
    #: The tool's name and the call that it answers.
    name: str = ""
    tool_call_id: str = ""
    #: Why the generation ended: stop, tool_calls, length, repetition, filtered or unknown. OpenAI's words are read; any other one is
    #: recorded as unknown.
    finish_reason: str = ""
    #: Policy version that sampled the message; None: that of the dispatch, -1: nobody knows.
    policy_version: int | None = None
    #: Counts up where the prompt stopped extending the tokens before it exactly (a summary, an edited history).
    segment: int = 0
    #: The server sampled from another distribution than the policy's: under a grammar, a forced tool call, a bias of tokens and the like.
    #: Such tokens are marked in batches, and not trained on unless the run says so (`filters.train_constrained`).
    constrained: bool = False


@dataclass
class Trajectory:
    """One rollout: its messages, its reward, and the policy version when it was started.

    reward None leaves the score to the task's verifier or to feedback. failure: what went wrong, for a rollout that has no outcome;
    it costs itself, not its group.
    """

    messages: Sequence[Message | Mapping[str, Any]] = ()
    reward: float | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    policy_version: int = 0
    #: finished, or the limit that it ran into: max_turns, max_tokens, length, timeout.
    stop_reason: str = "finished"
    failure: str = ""
    #: What kind of failure it is, a word that the books count by.
    failure_class: str = "internal"


#: Why a generation ended, by OpenAI's words and Rondo's own.
_FINISHES = {word: word for word in ("", "stop", "tool_calls", "length", "repetition", "filtered", "unknown")}
_FINISHES |= {"function_call": "tool_calls", "content_filter": "filtered"}

#: Bytes of columns up to which they are not compressed.
SMALL = 32 << 10

_INT32S, _FLOAT32S, _BOOLS = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.bool_())

_SPAN = [pa.field(name, kind, nullable=False) for name, kind in (("start", pa.int32()), ("length", pa.int32()), ("version", pa.int64()))]
_VERSION_SPANS = pa.list_(pa.struct(_SPAN))

_SCHEMA = pa.schema(
    [
        *[pa.field(name, pa.string(), nullable=False) for name in ("run_id", "group_id", "rollout_id", "task")],
        *[pa.field(name, pa.int32(), nullable=False) for name in ("index", "turn", "segment")],
        *[pa.field(name, pa.string(), nullable=False) for name in ("role", "content", "name", "tool_call_id", "tool_calls")],
        pa.field("token_ids", _INT32S, nullable=False),
        pa.field("logprobs", _FLOAT32S, nullable=False),
        pa.field("loss_mask", _BOOLS, nullable=False),
        pa.field("policy_version", pa.int64(), nullable=False),
        *[pa.field(name, pa.string(), nullable=False) for name in ("finish_reason", "workspace")],
        pa.field("started_at", pa.timestamp("ns", "UTC")),
        pa.field("duration", pa.duration("ns"), nullable=False),
        pa.field("reasoning", pa.string(), nullable=False),
        pa.field("version_spans", _VERSION_SPANS, nullable=False),
        pa.field("token_columns", pa.string(), nullable=False),
        pa.field("constrained", pa.bool_(), nullable=False),
    ]
)


def encode(run: str, group: str, rollout: str, task: str, trajectory: Trajectory) -> tuple[bytes, dict[str, Any]]:
    """The trajectory file of a rollout, and what the fact rollout.finished says of it. ValueError names the message that is wrong."""
    rows = _rows(trajectory)
    named: dict[str, Any] = {"reasoning": "", "version_spans": [], "token_columns": ""}
    named |= {"run_id": run, "group_id": group, "rollout_id": rollout, "task": task, "workspace": "", "started_at": None, "duration": 0}
    columns = [[row.get(f.name, named.get(f.name)) for row in rows] for f in _SCHEMA]
    metadata = {
        "kind": "trajectory",
        "schema_version": "1",
        "run_id": run,
        "group_id": group,
        "rollout_id": rollout,
        "task": task,
        "stop_reason": trajectory.stop_reason,
        "dispatch_version": str(trajectory.policy_version),
        "text_only": "true" if _text_only(rows) else "false",
    }
    arrays = [pa.array(values, f.type) for values, f in zip(columns, _SCHEMA, strict=True)]
    record = pa.record_batch(arrays, schema=_SCHEMA.with_metadata(metadata))
    sink = pa.BufferOutputStream()
    # Of a small file most is the schema, and compression would take more time than all else.
    options = pa.ipc.IpcWriteOptions(compression="zstd" if record.nbytes > SMALL else None, use_threads=record.nbytes > SMALL)
    with pa.ipc.new_file(sink, record.schema, options=options) as writer:
        writer.write_batch(record)
    data: bytes = sink.getvalue().to_pybytes()
    return data, _figures(trajectory, rows)


def _figures(trajectory: Trajectory, rows: list[dict[str, Any]]) -> dict[str, Any]:
    versions = [trajectory.policy_version, *(r["policy_version"] for r in rows if r["policy_version"] >= 0)]
    constrained = sum(int(r["loss_mask"].sum()) for r in rows if r["constrained"])
    unknown = sum(int(r["loss_mask"].sum()) for r in rows if r["policy_version"] < 0)
    return {
        "stop_reason": trajectory.stop_reason,
        "turns": 1 + max((r["turn"] for r in rows if r["role"] == "assistant"), default=-1),
        "tokens": sum(len(r["token_ids"]) for r in rows),
        "sampled": sum(int(r["loss_mask"].sum()) for r in rows),
        "samples": len({r["segment"] for r in rows}),
        "text_only": _text_only(rows),
        "min_version": min(versions),
        "max_version": max(versions),
        **({"unknown_versions": unknown} if unknown else {}),
        **({"constrained": constrained} if constrained else {}),
    }


def _text_only(rows: list[dict[str, Any]]) -> bool:
    return not any(len(r["token_ids"]) for r in rows)


def _rows(trajectory: Trajectory) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    generations = 0
    for i, message in enumerate(trajectory.messages):
        m = message if isinstance(message, Message) else Message(**message)
        generated = m.role == "assistant"
        generations += generated
        # What is answered to a generation belongs to it, what is asked belongs to the next one.
        turn = generations - 1 if generated or m.role == "tool" else generations
        rows.append(_row(i, max(0, turn), m, trajectory.policy_version))
    return rows


def _row(i: int, turn: int, m: Message, dispatched: int) -> dict[str, Any]:
    try:
        tokens = token_ids_of(m.token_ids)
        sampled = np.full(len(tokens), m.role == "assistant") if m.loss_mask is None else mask_of(m.loss_mask)
        logprobs = np.zeros(len(tokens), np.float32) if m.logprobs is None else logprobs_of(m.logprobs, sampled)
    except ValueError as error:
        raise ValueError(f"message {i}: {error}") from None
    if len(sampled) != len(tokens) or len(logprobs) != len(tokens):
        raise ValueError(f"message {i}: {len(tokens)} token ids, {len(logprobs)} logprobs, {len(sampled)} entries of the loss mask")
    if m.logprobs is None and sampled.any():
        raise ValueError(f"message {i} was sampled, but has no logprobs")
    version = dispatched if m.policy_version is None else m.policy_version
    return {
        "index": i,
        "turn": turn,
        "segment": m.segment,
        "role": m.role,
        "content": m.content,
        "name": m.name,
        "tool_call_id": m.tool_call_id,
        "tool_calls": json.dumps(list(m.tool_calls)) if m.tool_calls else "",
        "token_ids": tokens,
        "logprobs": np.where(sampled, logprobs, np.float32(0)),
        "loss_mask": sampled,
        "policy_version": version if m.role == "assistant" or sampled.any() else -1,
        "finish_reason": _FINISHES.get(m.finish_reason, "unknown"),
        "constrained": bool(m.constrained),
    }
