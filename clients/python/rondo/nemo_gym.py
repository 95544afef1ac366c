"""NeMo Gym's token capture on a run of Rondo's: model servers put the tokens of calls on the log, and trainers get rollouts of them.

Gym's configuration names the classes; the run is an external one (`external: true`):

    token_id_capture:
      enabled: true
      sink: rondo.nemo_gym:Sink
      sink_kwargs: {run: gym, dir: /srv/rondo}
      lineage_store: rondo.nemo_gym:Lineage
      lineage_store_kwargs: {run: gym, dir: /srv/rondo}
      rebuild_response: false

`Source` is what Gym's `trajectories_from_source` reads, and `trajectory` makes a rollout of Rondo's of what that builds. Keyword arguments
beside run are those of rondo.Client: dir, or nats and store, and creds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from nemo_gym.token_id_capture.lineage import IncrementalLineageStore
from nemo_gym.token_id_capture.protocols import TokenCaptureSnapshot
from nemo_gym.token_id_capture.records import TokenEntry

from .captures import Captures
from .client import STARTING
from .sync import Client
from .trajectory import Message, Trajectory

__all__ = ["Lineage", "Sink", "Source", "trajectory"]


class _Connected:
    """A client of its own, which works in a thread: Gym's servers and their loop wait for nothing else."""

    def __init__(self, run: str, **client: Any) -> None:
        self._run = run
        self._client = Client(**{"source": "nemo-gym", "wait": STARTING, **client})
        self._captures = Captures(self._client, run)

    async def close(self) -> None:
        """Disconnect; a second time does nothing. Nothing waits to be written."""
        await asyncio.to_thread(self._client.close)


class Sink(_Connected):
    """Gym's TokenSink: a call is on the log, and every worker sees it, when put returns."""

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        """State a call before it is made: one that is lost on the way leaves the rollout incomplete."""
        await asyncio.to_thread(self._captures.begin, rollout_id, model_call_id)

    async def put(self, entry: TokenEntry) -> None:
        """State a call's tokens. The same again does nothing; others are an IntakeError. ValueError for a token that is no number."""
        text = json.dumps(entry.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
        await asyncio.to_thread(self._captures.record, entry.rollout_id, entry.model_call_id, text)

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        """State that a call is lost."""
        await asyncio.to_thread(self._captures.lose, rollout_id, model_call_id)


class Source(_Connected):
    """Gym's TokenSource. A snapshot's version is the sequence of the capture's last fact, so a later call outdates it."""

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        """The calls of a rollout as they are now. Failed where they are retired."""
        return await asyncio.to_thread(self._freeze, rollout_id)

    def _freeze(self, rollout: str) -> TokenCaptureSnapshot:
        capture = self._captures.read(rollout)
        entries = tuple(_entry(text) for text in capture.entries.values())
        return TokenCaptureSnapshot(rollout, entries, capture.incomplete, self._snapshot(capture.last), capture.last)

    def _snapshot(self, last: int) -> str:
        return f"{self._run}/{last}"

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        """Retire a snapshot that was handed on; False where something was captured since, and then nothing changes."""
        if snapshot_id != self._snapshot(version):
            return False
        return await asyncio.to_thread(self._captures.retire, rollout_id, version)


class Lineage(IncrementalLineageStore):  # type: ignore[misc]
    """Gym's LineageResolver over the calls that any sink of the run has put."""

    def __init__(self, run: str, *, max_cached_rollouts: int = 65536, max_cached_tokens: int = 8_000_000, **client: Any) -> None:
        super().__init__(max_cached_rollouts=max_cached_rollouts, max_cached_tokens=max_cached_tokens)
        self._connected = _Connected(run, **client)

    def _fetch_new_entries(self, rollout_id: str, cursor: int | None) -> tuple[list[tuple[TokenEntry, int]], int]:
        found = [(_entry(text), sequence) for sequence, text in self._connected._captures.records(rollout_id, (cursor or 0) + 1)]
        return found, found[-1][1] if found else cursor or 0

    def _load_entry(self, rollout_id: str, ref: int) -> TokenEntry:
        return _entry(next(self._connected._captures.records(rollout_id, ref))[1])  # the base class checks whose it is

    async def close(self) -> None:
        """Disconnect, and forget what was read."""
        await super().close()
        await self._connected.close()


def _entry(text: str) -> TokenEntry:
    return TokenEntry.model_validate(json.loads(text))


def trajectory(
    response: Mapping[str, Any], reward: float | None, *, components: Mapping[str, float] | None = None, policy_version: int = 0
) -> Trajectory:
    """A rollout for publish_group or publish_trajectory, of a response whose output has tokens: one that Gym rebuilt, or a native agent's.

    ValueError where a prompt does not extend the tokens before it.
    """
    messages: list[Message] = []
    known: list[int] = []
    for item, before in _calls(response.get("output") or []):
        prompt, sampled = list(item["prompt_token_ids"]), list(item["generation_token_ids"])
        if prompt[: len(known)] != known:
            raise ValueError(f"message {len(messages)}: the prompt does not extend the {len(known)} tokens before it")
        messages.append(Message("tool" if messages else "user", "\n".join(before.heard), prompt[len(known) :]))
        said = Message("assistant", "\n".join(before.said), sampled, list(item["generation_log_probs"]), tool_calls=before.calls)
        messages.append(said)
        known = prompt + sampled
    return Trajectory(messages, reward, components or {}, policy_version)


class _Texts:
    """What items say: the model, and the tools that answered it before."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard: list[str] = []
        self.calls: list[dict[str, str]] = []

    def add(self, item: Mapping[str, Any]) -> None:
        kind = item.get("type")
        if kind == "function_call_output":
            self.heard.append(str(item.get("output", "")))
        elif kind == "function_call":
            fields = {"id": "call_id", "name": "name", "arguments": "arguments"}
            self.calls.append({name: str(item.get(field, "")) for name, field in fields.items()})
        elif kind != "reasoning":
            content = item.get("content") or ""
            self.said += [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content]


def _calls(items: list[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], _Texts]]:
    """Each item with tokens, and the texts of the items up to it."""
    texts = _Texts()
    for item in items:
        texts.add(item)
        if item.get("generation_token_ids"):
            yield item, texts
            texts = _Texts()
