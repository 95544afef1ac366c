"""What the reward of a recorded rollout follows from: the verdict, what the verifier printed, and what the rollout changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .errors import Damaged, NotFound, RondoError
from .facts import Fact
from .harness import Verdict
from .objects import Ref, Store, fetch
from .trajectory import Message
from .workspace import diff, entries

__all__ = ["GradedTests", "RecordedMessage", "RecordedRollout", "RecordedVerdict", "UnmetTest", "recorded"]

#: Bytes of the verifier's output that are read, and the last ones of them that are given.
MAX_OUTPUT, MAX_GIVEN = 16 << 20, 64 << 10


@dataclass(frozen=True)
class UnmetTest:
    """A test that decides a reward and did not end as it must."""

    #: The name, at most 200 bytes of it.
    name: str
    #: failed, error, skipped, xfail (it failed as it was expected to) or missing (the test program did not report it).
    state: str
    #: It passed before the rollout, and had to go on passing.
    regression: bool
    #: The beginning of what the test program says of the failure, at most 400 bytes; "" where it says nothing.
    message: str


@dataclass(frozen=True)
class GradedTests:
    """How the tests ended that decide a reward, where the task's grading names them."""

    #: Counted from 1; 0 for all of a task without stages.
    stage: int
    #: How many tests decide, and how many of them ended as they must.
    graded: int
    held: int
    #: The others: of very many the first ones.
    unmet: Sequence[UnmetTest]
    #: The test program did not come to its end, or failed without naming a test: that is no reward, whatever each test says.
    bad_end: bool


@dataclass(frozen=True, kw_only=True)
class RecordedVerdict(Verdict):
    """A verdict as the log has it."""

    #: Of the verifier, and how long it took.
    exit_code: int
    seconds: float
    #: What of the rollout looks like cheating, "name: detail" each.
    flags: Sequence[str]
    #: The tests that decided, of each stage or of the whole; empty where the task has no grading, and the output alone tells.
    tests: Sequence[GradedTests] = field(repr=False)
    #: The last 64 KiB of what the verifier printed; "" where nobody ran one. Where it cannot be read, `unread` says why.
    output: str = field(repr=False)
    unread: str = ""


@dataclass
class RecordedMessage(Message):
    """A message of a recorded rollout."""

    #: What the model thought, where the server took it out of the text.
    thoughts: str = ""
    #: The answer of the model that the message is, or belongs to, from 0.
    turn: int = 0


@dataclass(frozen=True)
class RecordedRollout:
    """One rollout of a run, as it was recorded when it was read."""

    run: str
    id: str
    group: str
    task: str
    #: scored, failed or in_flight.
    outcome: str
    #: None unless it is scored.
    verdict: RecordedVerdict | None
    #: Of a failed one, what went wrong: the stage, the class and the message.
    failure: str
    _objects: Store = field(repr=False)
    #: The task's snapshot and the rollout's change, as facts refer to them; without a snapshot Rondo had no workspace of it.
    _snapshot: Any = field(repr=False)
    _change: Any = field(repr=False)
    #: The file with what was said, None until the rollout is finished.
    _trajectory: Any = field(repr=False)

    def conversation(self) -> list[RecordedMessage]:
        """What was said, called and answered, in its order, with tokens and log-probabilities. NotFound until it is finished.

        It has the rollouts of others, too, that a harness brought. Tokens of a prompt that no message brought are left out.
        """
        if not self._trajectory:
            raise NotFound(f"rollout {self.id} of run {self.run} is not finished: `rondo logs {self.run} {self.id}` tells what there is")
        rows = pa.ipc.open_file(fetch(self._objects, Ref.parse(self._trajectory))).read_all().to_pylist()
        return [_said(row) for row in rows if row["role"] != "prompt"]

    def diff(self) -> str:
        """What the rollout changed in its workspace as far as it has come, in the form of `git diff`; "" where that is nothing.

        Large and binary files are named and not shown. NotFound where the rollout ran elsewhere, so that Rondo had no workspace of it.
        """
        if not self._snapshot:
            raise NotFound(f"Rondo has no workspace of rollout {self.id} of run {self.run}: it ran elsewhere, or its task has none")
        if not self._change:
            return ""
        return diff(entries(self._objects, self._snapshot), entries(self._objects, self._snapshot, self._change))


def recorded(run: str, rollout: str, facts: Sequence[Fact], snapshot: Any, objects: Store) -> RecordedRollout:
    """A rollout of its facts, in their order."""
    told = {fact.type: fact.data for fact in facts}
    started, scored, failed = (told.get(f"rollout.{what}") for what in ("started", "scored", "failed"))
    if started is None:
        where = f"`rondo explain rollout {run} {rollout}` reads it"
        raise NotFound(f"rollout {rollout} of run {run} is in the archive alone, which this client does not read: {where}")
    failure = " ".join(filter(None, (failed["stage"], failed["class"], failed.get("message")))) if failed else ""
    outcome = "failed" if failed else "scored" if scored else "in_flight"
    verdict = _verdict(scored, _tests(facts), objects) if scored else None
    file = told.get("rollout.finished", {}).get("trajectory")
    return RecordedRollout(
        run, rollout, started["group"], started["task"], outcome, verdict, failure, objects, snapshot, _change(facts), file
    )


def _said(row: dict[str, Any]) -> RecordedMessage:
    same = ("role", "content", "token_ids", "logprobs", "loss_mask", "name", "tool_call_id", "finish_reason", "policy_version", "segment")
    calls = json.loads(row["tool_calls"] or "[]")
    own = {name: row[name] for name in (*same, "constrained", "turn")}
    return RecordedMessage(**own, tool_calls=calls, thoughts=row["reasoning"])


def _tests(facts: Sequence[Fact]) -> tuple[GradedTests, ...]:
    """The graded tests of a rollout's verdicts, in their order."""
    found = []
    for fact in facts:
        if fact.type in ("rollout.step_scored", "rollout.scored") and (told := fact.data.get("tests")):
            stage = fact.data["step"] + 1 if fact.type == "rollout.step_scored" else 0
            named = told.get("unmet") or ()
            unmet = tuple(UnmetTest(t["name"], t["state"], t.get("regression", False), t.get("message", "")) for t in named)
            found.append(GradedTests(stage, told["graded"], told["held"], unmet, told.get("bad_end", False)))
    return tuple(found)


def _verdict(scored: dict[str, Any], tests: Sequence[GradedTests], objects: Store) -> RecordedVerdict:
    output, unread = "", ""
    if scored.get("log"):
        try:
            ref = Ref.parse(scored["log"])
            if ref.size > MAX_OUTPUT:
                raise Damaged(f"it has {ref.size} bytes")
            output = fetch(objects, ref).strip()[-MAX_GIVEN:].decode(errors="replace")
        except (RondoError, OSError) as error:
            unread = f"what the verifier printed cannot be read: {error}"
    forfeit = (scored.get("forfeit") or {}).get("class", "")
    return RecordedVerdict(
        float(scored["reward"]),
        dict(scored.get("components") or {}),
        forfeit,
        exit_code=scored["exit_code"],
        seconds=scored["duration_ms"] / 1000,
        flags=tuple(scored.get("flags") or ()),
        tests=tests,
        output=output,
        unread=unread,
    )


def _change(facts: Sequence[Fact]) -> Any:
    """The change against the snapshot that a rollout has left, as far as it has come; None for none."""
    change, kept = None, False
    for fact in facts:
        told = fact.data
        if fact.type == "rollout.copied" and told["tools"]:
            change = max(told["tools"], key=lambda done: int(done["turn"])).get("workspace")
        elif fact.type in ("rollout.tools_completed", "rollout.workspace_answered"):
            change, kept = told.get("workspace"), fact.type == "rollout.workspace_answered"
        elif fact.type == "rollout.step_scored" and told.get("workspace") is not None and not kept:
            change = told["workspace"] if told["workspace"].get("ref") else None  # an empty one is the snapshot
        elif fact.type == "rollout.finished" and told.get("workspace"):
            change = told["workspace"]
    return change
