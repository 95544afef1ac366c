"""Hints: texts about spans of a rollout, which a judge, a person or a program states, and which a teacher has in its context."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .columns import Offsets, Ragged
from .errors import Damaged, NotFound
from .facts import subject
from .intake import Answer
from .objects import Ref, fetch
from .plane import Plane
from .tokens import token_ids_of

__all__ = ["Hint", "HintSpan", "Tokenize", "mask", "prompts", "read", "samples", "state", "stated", "table"]

#: The token ids of a text, without any that begin or end a prompt.
Tokenize = Callable[[str], Sequence[int]]


class Hint(NamedTuple):
    """A hint about the tokens that a turn has sampled, or some of them.

    text: up to 4096 bytes. turn: from 0. start, length: among the turn's sampled tokens; by default all of them. tokens: what is inserted
    for the text, with what the model's chat format has around it, up to 1024 ids; by default the teacher makes them of the text. at: the
    token of the sample before which they are inserted; by default the first that the turn sampled.
    """

    text: str
    turn: int
    start: int = 0
    length: int | None = None
    tokens: Sequence[int] = ()
    at: int | None = None


class HintSpan(NamedTuple):
    """A hint as a batch has it: about the tokens start to start + length of its sample, inserted before the token at.

    text is empty, and tokens too, where a batch has more of them than its file may hold.
    """

    turn: int
    start: int
    length: int
    at: int
    text: str
    tokens: tuple[int, ...]


def read(texts: list[str], offsets: Offsets) -> list[list[HintSpan]]:
    """The hints of a batch's samples. Damaged where they do not fit their tokens."""
    found = []
    for sample, text in enumerate(texts):
        tokens, end, spans = int(offsets[sample + 1] - offsets[sample]), 0, []
        try:
            for h in json.loads(text or "[]"):
                told = (int(h["turn"]), int(h["start"]), int(h["length"]), int(h["at"]))
                spans.append(HintSpan(*told, str(h.get("text", "")), tuple(map(int, h.get("tokens") or ()))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"hints of sample {sample}: {error!r}") from None
        for span in spans:
            if span.start < end or span.length < 1 or span.start + span.length > tokens or not 0 <= span.at <= span.start:
                raise Damaged(f"a hint of sample {sample} does not fit its {tokens} tokens")
            end = span.start + span.length
        found.append(spans)
    return found


def mask(hints: list[list[HintSpan]], offsets: Offsets) -> Ragged:
    """True where a hint is about the token."""
    values = np.zeros(int(offsets[-1]), np.bool_)
    for sample, spans in enumerate(hints):
        for span in spans:
            first = int(offsets[sample]) + span.start
            values[first : first + span.length] = True
    return Ragged(values, offsets)


def table(file: bytes) -> pa.Table:
    """The rows of a trajectory file."""
    try:
        return pa.ipc.open_file(pa.py_buffer(file)).read_all()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError) as error:
        raise Damaged(f"not a trajectory file: {error}") from None


class _Sample(NamedTuple):
    tokens: npt.NDArray[np.int32]
    turns: npt.NDArray[np.int32]  # that sampled the token, -1 where none did


def samples(rows: pa.Table) -> list[_Sample]:
    """The samples of a trajectory, in their order in batches."""
    try:
        columns = [rows.column(name).to_pylist() for name in ("segment", "turn", "token_ids", "loss_mask")]
    except KeyError as error:
        raise Damaged(f"not a trajectory file: {error}") from None
    tokens: dict[int, list[int]] = {}
    turns: dict[int, list[int]] = {}
    for segment, turn, ids, sampled in zip(*columns, strict=True):
        tokens.setdefault(segment, []).extend(ids)
        turns.setdefault(segment, []).extend(turn if s else -1 for s in sampled)
    return [_Sample(np.array(tokens[s], np.int32), np.array(turns[s], np.int32)) for s in tokens]


def located(found: list[_Sample], hints: Iterable[Hint]) -> list[dict[str, Any]]:
    """The hints as rollout.hinted has them. ValueError for tokens that a turn has not sampled."""
    told = []
    for hint in hints:
        places = [(s, np.flatnonzero(sample.turns == hint.turn)) for s, sample in enumerate(found)]
        sample, tokens = next(((s, at) for s, at in places if len(at)), (0, np.zeros(0, np.intp)))
        length = len(tokens) - hint.start if hint.length is None else hint.length
        if hint.turn < 0 or hint.start < 0 or length < 1 or hint.start + length > len(tokens):
            raise ValueError(f"{length} tokens from token {hint.start} of turn {hint.turn}, which sampled {len(tokens)} tokens")
        one: dict[str, Any] = {"sample": sample, "start": int(tokens[hint.start]), "length": length, "text": hint.text}
        if len(hint.tokens):
            one["tokens"] = token_ids_of(hint.tokens).tolist()
        if hint.at is not None:
            one["at"] = hint.at
        told.append(one)
    return sorted(told, key=lambda h: (h["sample"], h["start"]))


async def trajectory(plane: Plane, run: str, rollout: str, *, rewarded: bool = True) -> tuple[Ref, pa.Table]:
    """The file and the rows of the trajectory of a rollout with a reward. rewarded False: of a finished one, with or without a reward."""
    fact = await plane.log.last(run, subject(run, "rollout.scored", rollout))
    if fact is None and not rewarded:
        fact = await plane.log.last(run, subject(run, "rollout.finished", rollout))
    if fact is None:
        raise NotFound(f"rollout {rollout} of run {run} has {'no reward yet' if rewarded else 'not finished'}")
    ref = Ref.parse(fact.data["trajectory"])
    return ref, table(await asyncio.to_thread(fetch, plane.objects, ref))


async def state(plane: Plane, run: str, rollout: str, by: str, hints: Iterable[Hint]) -> Answer:
    """State what is found in a rollout."""
    ref, rows = await trajectory(plane, run, rollout)
    told = {"by": by, "trajectory": ref.sha256, "hints": located(samples(rows), hints)}
    return await plane.intake.state(run, "rollout.hinted", rollout, told)


async def stated(plane: Plane, run: str, rollout: str, by: str) -> list[dict[str, Any]]:
    """What a hinter has stated of a rollout. NotFound before that."""
    where, sequence = subject(run, "rollout.hinted", rollout), 0
    while (fact := await plane.log.next(run, where, sequence + 1)) is not None:
        if fact.data.get("by") == by:
            found: list[dict[str, Any]] = fact.data["hints"]
            return found
        sequence = fact.sequence
    raise NotFound(f"{by} has stated no hints of rollout {rollout} of run {run}")


def prompts(found: list[_Sample], told: list[dict[str, Any]], tokenize: Tokenize | None) -> list[tuple[npt.NDArray[np.int32], int]]:
    """For each hint the tokens up to the end of its span with the hint among them, and how many at the end are the span's."""
    out = []
    for hint in told:
        tokens, turns = found[hint["sample"]]
        start, length, ids = hint["start"], hint["length"], hint.get("tokens")
        if not ids:
            if tokenize is None:
                raise ValueError(f"the hint {hint['text']!r:.80} has no tokens: give tokenize")
            ids = tokenize(hint["text"])
        at = hint.get("at")
        if at is None:
            others = np.flatnonzero(turns[:start] != turns[start])
            at = int(others[-1]) + 1 if len(others) else 0
        out.append((np.concatenate([tokens[:at], token_ids_of(ids), tokens[at : start + length]]), length))
    return out
