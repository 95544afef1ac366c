"""The client: everything a trainer, a harness or a user's product may do with a plane, on asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any

from . import outside, publishing, versions
from .connection import Connection, within
from .door import Answer, Door
from .endpoint import find
from .errors import NotFound, RondoError
from .facts import CATALOGUE, Log, subject
from .objects import open_store
from .trajectory import Message, Trajectory
from .versions import Version
from .weights import Weights

__all__ = ["AsyncClient"]


class AsyncClient:
    """A client of the plane in a directory, or of the one at `nats` with the store `store`.

    dir: where `rondo up` runs; found again when it is restarted. Default: RONDO_DIR, or .rondo.
    nats, store: URLs of NATS servers, comma-separated, and a directory or s3://bucket/prefix?endpoint=URL (credentials of
    the bucket in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY). Default: RONDO_NATS and RONDO_STORE.
    source: who states the facts; it stands on the log.
    timeout: seconds to wait for the plane at first, and for each answer of the door later; None waits for ever.
    """

    def __init__(
        self,
        dir: str | os.PathLike[str] | None = None,
        *,
        nats: str | None = None,
        store: str | None = None,
        source: str = "python",
        timeout: float | None = 60.0,
    ) -> None:
        if dir is None:
            nats = nats or os.environ.get("RONDO_NATS") or None
        self._dir = str(dir or os.environ.get("RONDO_DIR") or ".rondo")
        self._nats, self._store = nats, store or (os.environ.get("RONDO_STORE") if nats else None)
        if self._nats and not self._store:
            raise ValueError("nats needs store: the log refers to objects (a directory, or s3://bucket/prefix?endpoint=URL)")
        self._source, self.timeout = source, timeout
        self.connection = Connection(self._locate)
        self._opened = asyncio.Lock()
        self._parts: tuple[Log, Door, Any] | None = None

    def _locate(self) -> str:
        return self._nats or find(self._dir).nats

    async def open(self) -> AsyncClient:
        """Connect, and open the store. ConnectError when no plane can be reached within the timeout."""
        async with self._opened:
            if self._parts is None:
                try:
                    await asyncio.wait_for(self.connection.link(), self.timeout)
                except asyncio.TimeoutError:
                    raise self.connection.problem from None
                objects = open_store(self._store or find(self._dir).store)
                self._parts = Log(self.connection, objects), Door(self.connection, objects, self._source), objects
        return self

    async def close(self) -> None:
        """Disconnect."""
        await self.connection.close()

    async def __aenter__(self) -> AsyncClient:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    @property
    def log(self) -> Log:
        """The facts of the plane."""
        return self._open_parts[0]

    @property
    def door(self) -> Door:
        """Where facts are stated; its calls wait as long as it takes."""
        return self._open_parts[1]

    @property
    def objects(self) -> Any:
        """The store of the plane."""
        return self._open_parts[2]

    @property
    def _open_parts(self) -> tuple[Log, Door, Any]:
        if self._parts is None:
            raise RondoError("the client is not open: use it in `async with`, or call open()")
        return self._parts

    async def state(self, run: str, type: str, entity: str, data: Mapping[str, Any], *, id: str | None = None) -> Answer:
        """State a fact of any type that outsiders may state (`rondo events schema` lists them) about an entity.

        run.paused and run.resumed, for example, are about the run itself: state("mine", "run.paused", "mine", {"reason": "…"}).
        The same id is one fact, however often it is stated; without one every call states another.
        DoorError when it is refused; TimeoutError when the outcome is unknown.
        """
        await self.open()
        return await within(self.door.state(run, type, entity, data, id=id), self.timeout, f"state {type} of {entity}")

    async def config(self, run: str) -> dict[str, Any]:
        """The configuration with which a run was opened. NotFound when it was not."""
        await self.open()
        opened = await within(self.log.last(run, subject(run, "run.opened", run)), self.timeout, f"look for run {run}")
        if opened is None:
            raise NotFound(f"there is no run {run!r}: `rondo run list` lists the runs")
        config: dict[str, Any] = opened.data["config"]
        return config

    async def pause(self, run: str, reason: str = "") -> Answer:
        """Stop opening groups; rollouts in flight go on."""
        return await self.state(run, "run.paused", run, {"reason": reason})

    async def resume(self, run: str, reason: str = "") -> Answer:
        """Open groups again."""
        return await self.state(run, "run.resumed", run, {"reason": reason})

    async def publish_weights(
        self,
        policy: str,
        weights: Weights,
        *,
        run: str,
        version: int | None = None,
        through_step: int,
        metadata: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Publish weights as a version of a policy, and wait until inference servers may load it; the version.

        weights: arrays or torch tensors by name (a state_dict; bfloat16 too), or the path of a .safetensors file or of a folder
        of them, with tokenizer and configuration beside. Arrays are written as safetensors files of at most 512 MiB.
        run, through_step: the run and the last of its feed's steps that the weights were trained on.
        version: versions only grow. None: one more than the last. The same version with the same bytes may be repeated; with
        others it is WeightsRejected.
        timeout: seconds until it is published; None waits, since large weights take as long as they take.
        """
        await self.open()
        call = publishing.publish(self, policy, weights, run, version, through_step, dict(metadata or {}))
        return await within(call, timeout, f"publish weights of policy {policy}")

    async def published(self, policy: str) -> Version | None:
        """The version of a policy that was published last; None before the first."""
        await self.open()
        return await within(versions.latest(self, policy), self.timeout, f"look for weights of policy {policy}")

    async def versions(self, policy: str, after: int = 0) -> AsyncGenerator[Version, None]:
        """The last published version of a policy, if it is behind `after`, and all that follow, without end.

        This is the loop of an inference server. A version that was replaced by a newer one while another was loaded is left out.

            async for version in client.versions("mine"):
                engine.load(version.download(f"/models/mine-{version.version}"))
                await client.activated("mine", version.version)
        """
        await self.open()
        async with aclosing(versions.follow(self, policy, after)) as published:
            async for version in published:
                yield version

    async def activated(self, policy: str, version: int, replica: str | None = None) -> Answer:
        """State that a replica of the inference server answers with a version now. replica: None names this process."""
        replica = replica or f"{socket.gethostname()}-{os.getpid()}"
        told = {"version": version, "replica": replica}
        return await self.state(CATALOGUE, "weights.activated", policy, told, id=f"activated-{policy}-{version}-{replica}")

    async def invalidate(self, run: str, rollout: str, reason: str) -> Answer:
        """Flag a rollout whose data must not be used; later batches leave it out."""
        return await self.state(run, "rollout.invalidated", rollout, {"reason": reason})

    async def annotate(
        self,
        run: str,
        rollout: str,
        *,
        turn: int | None = None,
        start: int | None = None,
        length: int | None = None,
        reward: float | None = None,
        text: str = "",
        values: Mapping[str, float] | None = None,
        id: str | None = None,
    ) -> Answer:
        """Attach a remark to a rollout, to one of its turns, or to a span of the tokens that a turn sampled.

        turn: from 0. start, length: sampled tokens of the turn. reward: of the turn or span, weighed by the run's span_weight.
        text, values: feedback that travels to the batch as it is.
        """
        remark = {
            "turn": turn,
            "start": start,
            "length": length,
            "reward": reward,
            "text": text or None,
            "values": dict(values or {}) or None,
        }
        return await self.state(run, "rollout.annotated", rollout, {k: v for k, v in remark.items() if v is not None}, id=id)

    async def publish_group(
        self, run: str, *, group: str, task: str, trajectories: Sequence[Trajectory], policy_version: int = 0
    ) -> list[str]:
        """Hand in a whole group of rollouts that ran elsewhere; their ids.

        group: a name of your choice (letters, digits, _); on the log it begins with x. task: a task of the run, or any name where the
        run has none. policy_version: of the run when the group began. The same call may be repeated, in another process too.
        """
        await self.open()
        work = outside.open_group(self, run, group, task, len(trajectories), policy_version)
        opened = await within(work, self.timeout, f"open group {group}")
        members = [outside.bring(self, run, opened, i, task, t) for i, t in enumerate(trajectories)]
        return await within(asyncio.gather(*members), self.timeout, f"hand in group {group}")

    async def publish_trajectory(
        self,
        run: str,
        *,
        group: str,
        member: int,
        size: int,
        task: str,
        messages: Sequence[Message | Mapping[str, Any]],
        reward: float | None = None,
        components: Mapping[str, float] | None = None,
        policy_version: int = 0,
        stop_reason: str = "finished",
        failure: str = "",
    ) -> str:
        """Hand in one rollout of a group of `size` that ran elsewhere; its id.

        messages: the conversation with its tokens, see Message. reward: None leaves the score to the task's verifier or to
        record_feedback. policy_version: of the run when the rollout began. failure: what went wrong, in place of messages and
        reward. A group completes when all of its members, counted from 0, are handed in. The same call may be repeated.
        """
        await self.open()
        trajectory = Trajectory(messages, reward, components or {}, policy_version, stop_reason, failure)
        opened = await within(outside.open_group(self, run, group, task, size, policy_version), self.timeout, f"open group {group}")
        work = outside.bring(self, run, opened, member, task, trajectory)
        return await within(work, self.timeout, f"hand in member {member} of group {group}")

    async def submit_query(self, run: str, instruction: str, *, task: str, verify: bool = False, name: str | None = None) -> str:
        """Hand in a user's wish, which becomes a group of its own, taken up before the next task; its name on the log.

        task: the run's task whose workspace and tools it uses. verify: score it with that task's verifier; otherwise the reward comes from
        record_feedback. name: the same name is one query (letters, digits, - and _); None makes one up.
        """
        query = "q" + (name or uuid.uuid4().hex[:16])
        await self.state(run, "query.submitted", query, {"instruction": instruction, "task": task, "verify": verify}, id=query)
        return query

    async def record_feedback(
        self, run: str, rollout: str, signal: str, *, reward: float | None = None, text: str = "", id: str | None = None
    ) -> Answer:
        """State what a user made of a rollout: accept (reward 1), reject (0), score with a reward, or follow_up, which scores nothing.

        It is the reward of a rollout whose task has no verifier; one that was scored already keeps its reward.
        """
        told: dict[str, Any] = {"signal": signal, "text": text}
        if reward is not None:
            told["reward"] = reward
        return await self.state(run, "feedback.recorded", rollout, told, id=id)
