"""Episodes of verifiers' EnvServer on a run of Rondo's: what a server says of them is on the log, and what they sampled is trained on.

    async with rondo.AsyncClient("/srv/rondo") as client:
        episodes = Episodes(client, "sums", EnvClient("tcp://127.0.0.1:5000"), endpoint, "my-model")
        await episodes.play(task, group="g1", member=0, size=4)

The run is an external one (`external: true`). The server holds the conversation, asks the model and keeps its tokens (`TrainClientConfig`);
`rondo.env.verifiers` is for tasks whose conversation the plane holds.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verifiers.v1.configs.client import ClientConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.serve import EnvClient, EpisodeAssembly
from verifiers.v1.serve.delta import TraceSummary, dump, pack, unpack
from verifiers.v1.task import Task
from verifiers.v1.types import SamplingConfig, content_text

from .captures import AsyncCaptures
from .client import AsyncClient
from .connection import end
from .env.environment import components as env_components
from .env.verifiers import STOPS, parts
from .errors import Failed, IntakeError, NotFound
from .outside import PREFIX
from .trajectory import Message, Trajectory

__all__ = ["Episodes", "Traced", "traced", "trajectory"]

log = logging.getLogger("rondo.env_server")

#: What Rondo calls the limits at which verifiers ends a trace.
_LIMITS = {theirs: ours for ours, theirs in STOPS.items()}

#: The record behind the last delta. It is stated as begun before the first one, so a capture without it is incomplete.
END = "end"


@dataclass(frozen=True)
class Traced:
    """An episode as the log has it."""

    #: What the server's client was given; None where the episode has no end on the log.
    episode: WireEpisode | None
    #: Traces that the server took back, as they were, in the order in which it did.
    discarded: list[dict[str, Any]]
    #: What the server answered in place of an episode; "" for nothing.
    error: str
    #: The capture of the episode, and the sequence of its last fact; 0 where there is none.
    capture: str
    last: int
    #: Whether it was given up: its worker was lost, or the server did not answer.
    lost: bool = False
    #: Whether it was handed in as a rollout, and needs nobody any more.
    retired: bool = False


async def traced(client: AsyncClient, run: str, rollout: str) -> Traced:
    """The last episode that was played for a rollout, rebuilt from the log. NotFound where there is none."""
    found = [there async for there in _attempts(AsyncCaptures(client, run), rollout) if there.last]
    if not found:
        raise NotFound(f"run {run} has no trace of rollout {rollout!r}")
    return found[-1]


async def _attempts(captures: AsyncCaptures, rollout: str) -> AsyncGenerator[Traced, None]:
    """What is on the log of a rollout's episodes, the one that may be played next, with no facts, included."""
    attempt = 0
    while True:
        attempt += 1
        there = await _read(captures, f"{rollout}-{attempt}")
        yield there
        if not there.last:
            return


async def _read(captures: AsyncCaptures, capture: str) -> Traced:
    assembly, discarded, closing, last, lost, retired = EpisodeAssembly(), [], None, 0, False, False
    async for fact in captures.facts(capture):
        last = fact.sequence
        lost, retired = lost or fact.type == "capture.incomplete", fact.type == "capture.retired"
        if fact.type != "capture.recorded":
            continue
        entry = _decoded(json.loads(fact.data["entry"]))
        if fact.data["call"] == END:
            closing = entry
            continue
        if entry["delta"].get("discard") and entry["delta"]["trace"] in assembly.traces:
            discarded.append(assembly.traces[entry["delta"]["trace"]])
        assembly.apply(entry["delta"])
    episode, error = None, ""
    if closing is not None and not (error := closing.get("error", "")):
        record = assembly.finish(closing["head"], [TraceSummary(**summary) for summary in closing["traces"]])
        episode = await asyncio.to_thread(WireEpisode.model_validate, record)
    return Traced(episode, discarded, error, capture, last, lost and closing is None, retired)


class Episodes:
    """Plays tasks on an EnvServer as rollouts of an external run.

    endpoint, model, sampling: what the server asks; its traces need tokens to be trained on, so a TrainClientConfig. What the endpoint's
    `headers` say stands in the trace, and so on the log: give keys by `api_key_var` and `headers_from_env`.
    timeout: seconds that an episode may take. A server that dies does not answer, so this ends its episodes.
    """

    def __init__(
        self,
        client: AsyncClient,
        run: str,
        server: EnvClient,
        endpoint: ClientConfig,
        model: str,
        sampling: SamplingConfig | None = None,
        *,
        timeout: float = 3600.0,
    ) -> None:
        self._client, self._run, self._server, self._timeout = client, run, server, timeout
        self._endpoint, self._model, self._sampling = endpoint, model, sampling or SamplingConfig()
        self._captures = AsyncCaptures(client, run)

    async def play(self, task: Task, *, group: str, member: int, size: int, policy_version: int = 0) -> str:
        """Have the server play a task, and hand in what came of it as a member of a group; the rollout's id.

        Every delta of the traces is on the log while the server goes on. The same call may be repeated, in another process too: an episode
        whose end is on the log is handed in from there, and one whose worker was lost is played again. An episode that failed, or that the
        server discarded, fails its rollout and is no reward of 0.
        """
        rollout = f"{PREFIX}{group}-{member}"
        async for there in _attempts(self._captures, rollout):
            if there.retired:
                return rollout
            if there.lost:
                continue
            if not there.last:
                there = await self._played(task, there.capture)
            elif there.episode is None and not there.error:
                await self._captures.lose(there.capture, END)
                continue
            given = vars(trajectory(there, policy_version))
            await self._client.publish_trajectory(self._run, group=group, member=member, size=size, task=task.key[:32], **given)
            await self._captures.retire(there.capture, there.last)
            break
        return rollout

    async def _played(self, task: Task, capture: str) -> Traced:
        """Have an episode played, and give what the log has of it."""
        said: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        await self._captures.begin(capture, END)
        count = 0

        def take(delta: dict[str, Any]) -> None:
            nonlocal count
            said.put_nowait((f"delta-{count}", {"delta": delta}))
            count += 1

        writing = asyncio.create_task(self._write(capture, said))
        data = task.data.model_dump(mode="json")
        playing = asyncio.create_task(self._server.run(self._endpoint, self._model, self._sampling, data, on_delta=take))
        try:
            await asyncio.wait({playing, writing}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()  # raises: the end is not said yet
            if playing.done():
                said.put_nowait((END, _closing(playing)))
                await writing
            else:
                await self._captures.lose(capture, END)
        finally:
            await end(playing, writing)
        return await _read(self._captures, capture)

    async def _write(self, capture: str, said: asyncio.Queue[tuple[str, dict[str, Any]]]) -> None:
        """State records in their order, up to the end. A plane that is away is waited for: the server goes on, and says nothing twice."""
        name = ""
        while name != END:
            name, entry = await said.get()
            text = _record(capture, name, entry)
            while True:
                try:
                    await self._captures.record(capture, name, text)
                    break
                except TimeoutError as problem:
                    log.warning("%s; again", problem)
                except IntakeError as refused:
                    raise Failed(f"the episode is not recorded: {refused}. Is it played elsewhere?") from refused


def _closing(playing: asyncio.Task[WireEpisode]) -> dict[str, Any]:
    """What stands behind the last delta: the episode without its traces, and the size of each; or what the server answered instead."""
    error = playing.exception()
    if error is not None:
        return {"error": f"{error}"[:4000] or type(error).__name__}
    episode = playing.result()
    sizes = [{"id": trace.id, "nodes": len(trace.nodes), "calls": len(trace.calls)} for trace in episode.traces]
    return {"head": unpack(pack(dump(episode, exclude={"traces"}))), "traces": sizes}


def trajectory(there: Traced, policy_version: int = 0) -> Trajectory:
    """The rollout that an episode is: its messages with their tokens and its reward, or why it has none."""
    episode = there.episode
    if there.lost:
        return Trajectory(policy_version=policy_version, failure="the environment server did not answer in time", failure_class="deadline")
    if episode is None:
        return Trajectory(policy_version=policy_version, failure=there.error or "the episode has no end", failure_class="environment")
    last = episode.errors[-1] if episode.errors else None
    why = f"{last.type}: {last.message}" if last else ""
    if not episode.traces and there.discarded:
        why = f"the environment server discarded the episode's {len(there.discarded)} traces. {why}"
        return Trajectory(policy_version=policy_version, failure=why.strip(), failure_class="discarded")
    trained = [trace for trace in episode.traces if trace.agent.trainable]
    if not episode.ok:
        failed = [trace.errors[-1] for trace in episode.traces if not trace.ok and trace.errors]
        why = why or "; ".join(f"{error.type}: {error.message}" for error in failed)
        return Trajectory(policy_version=policy_version, failure=f"the episode failed: {why}", failure_class="environment")
    if len(trained) != 1:
        why = f"the episode has {len(trained)} traces to train on, and a rollout is one"
        return Trajectory(policy_version=policy_version, failure=why, failure_class="environment")
    [trace] = trained
    try:
        stated = env_components(parts(trace))["components"]
    except ValueError as error:
        return Trajectory(policy_version=policy_version, failure=f"the episode has no reward: {error}", failure_class="environment")
    stop = "timeout" if trace.is_timeout else _LIMITS.get(trace.stop_condition, "finished")
    return Trajectory(list(_messages(trace)), stated.pop("reward"), stated, policy_version, stop)


def _messages(trace: Any) -> Iterator[Message]:
    """Each branch is a sample. What an earlier one has of it is its prompt: it is trained on once."""
    finish = {call.node: call.finish_reason or "" for call in trace.calls if call.node is not None}
    seen: set[int] = set()
    places = {id(node): place for place, node in enumerate(trace.nodes)}
    for segment, branch in enumerate(branch for branch in trace.branches if branch.trainable):
        known = [node for node in branch.nodes if places[id(node)] in seen]
        if known:
            yield Message("prompt", token_ids=[token for node in known for token in node.token_ids], segment=segment)
        for node in branch.nodes[len(known) :]:
            seen.add(places[id(node)])
            yield _message(node, finish.get(places[id(node)], ""), segment)


def _message(node: Any, finish: str, segment: int) -> Message:
    said, given = node.message, iter(node.logprobs)
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in getattr(said, "tool_calls", None) or []]
    # Messages of an assistant that was not sampled were put into the prompt.
    role = said.role if node.sampled or said.role != "assistant" else "user"
    return Message(
        role,
        content_text(said.content),
        list(node.token_ids),
        [next(given, math.nan) if sampled else 0.0 for sampled in node.mask],
        list(node.mask),
        tool_calls=calls,
        name=getattr(said, "name", None) or "",
        tool_call_id=getattr(said, "tool_call_id", None) or "",
        finish_reason=finish,
        segment=segment,
    )


def _record(capture: str, call: str, said: Mapping[str, Any]) -> str:
    """A record's text. Its first two fields are those by which the intake knows whose it is."""
    named = {"rollout_id": capture, "model_call_id": call, **_encoded(said)}
    return json.dumps(named, separators=(",", ":"), allow_nan=False)


def _encoded(value: Any) -> Any:
    """What verifiers sends as msgpack, as JSON that loses nothing: bytes, floats that are no numbers, keys that are no texts are marked."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encoded(item) for key, item in value.items()}
        return {"$items": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_encoded(item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$items" in value:
        return {_decoded(key): _decoded(item) for key, item in value["$items"]}
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$float" in value:
        return float(value["$float"])
    return {key: _decoded(item) for key, item in value.items()}
