"""The client: everything a trainer, a harness or a user's product may do with a plane, on asyncio."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any

import pyarrow as pa

from . import hints, outside, publishing, teaching, traffic, variables, versions
from .access import Access
from .connection import Connection, within
from .endpoint import find
from .errors import ConnectError, Failed, NotFound, NotTaken, RondoError
from .facts import CATALOGUE, Log, subject
from .intake import Answer, Intake
from .objects import Store, open_store, put_blob
from .plane import Plane
from .repository import pack
from .trajectory import Message, Trajectory
from .versions import Version
from .weights import Weights, whole

__all__ = ["AsyncClient"]

#: Seconds to wait for a plane, unless a program says otherwise: somebody may sit in front of it.
WAIT = 2.0
#: Seconds that a program waits which is often started beside its plane: a trainer, an environment.
STARTING = 60.0


class AsyncClient:
    """A client of the plane in a directory, or of the one at `nats` with the store `store`.

    dir: where `rondo up` runs; found again when it is restarted. Default: RONDO_DIR, or .rondo.
    nats, store: URLs of NATS servers, comma-separated, and a directory or s3://bucket/prefix?endpoint=URL (credentials of
    the bucket in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY). Default: RONDO_NATS and RONDO_STORE.
    creds, ca: files of credentials (`rondo auth user` makes them) and of the certificate authority of a NATS server that is locked.
    Default: RONDO_NATS_CREDS and RONDO_NATS_CA; RONDO_NATS_CERT and RONDO_NATS_KEY name a client certificate.
    source: who states the facts; it stands on the log.
    wait: seconds to wait for a plane that is not there yet, which is a ConnectError then; None waits for ever.
    timeout: seconds to wait for each answer of the intake; None waits for ever.
    """

    def __init__(
        self,
        dir: str | os.PathLike[str] | None = None,
        *,
        nats: str | None = None,
        store: str | None = None,
        creds: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        source: str = "python",
        wait: float | None = WAIT,
        timeout: float | None = 60.0,
    ) -> None:
        variables.check()
        if dir is None:
            nats = nats or os.environ.get("RONDO_NATS") or None
        self._dir = str(dir or os.environ.get("RONDO_DIR") or ".rondo")
        self._nats, self._store = nats, store or (os.environ.get("RONDO_STORE") if nats else None)
        if self._nats and not self._store:
            raise ValueError("nats needs store: the log refers to objects (a directory, or s3://bucket/prefix?endpoint=URL)")
        self._source, self._wait, self.timeout = source, wait, timeout
        self.connection = Connection(self._locate, Access.of(creds, ca))
        self._opened = asyncio.Lock()
        self._plane: Plane | None = None
        self._configs: dict[str, dict[str, Any]] = {}

    def _locate(self) -> str:
        return self._nats or find(self._dir).nats

    def unreached(self) -> ConnectError:
        """Why there is no plane, and what to do."""
        problem = str(self.connection.problem)
        if "rondo up" in problem:
            return ConnectError(problem)
        if self._nats:
            return ConnectError(f"{problem}: start a plane there, or give the address of one by nats= or RONDO_NATS")
        return ConnectError(f"{problem}: start the plane again with `rondo up --dir {self._dir}`, or give another directory")

    async def open(self) -> AsyncClient:
        """Connect, and open the store. ConnectError when no plane can be reached within `wait` seconds."""
        async with self._opened:
            if self._plane is None:
                try:
                    await asyncio.wait_for(self.connection.link(), self._wait)
                except asyncio.TimeoutError:
                    raise self.unreached() from None
                objects = open_store(self._store or find(self._dir).store)
                self._plane = Plane(Log(self.connection, objects), Intake(self.connection, objects, self._source), objects)
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
        return self._opened_plane.log

    @property
    def intake(self) -> Intake:
        """Where facts are submitted; its calls wait as long as it takes."""
        return self._opened_plane.intake

    @property
    def objects(self) -> Store:
        """The store of the plane."""
        return self._opened_plane.objects

    @property
    def _opened_plane(self) -> Plane:
        if self._plane is None:
            raise RondoError("the client is not open: use it in `async with`, or call open()")
        return self._plane

    async def state(self, run: str, type: str, entity: str, data: Mapping[str, Any], *, id: str | None = None) -> Answer:
        """State a fact of any type that outsiders may state (`rondo events schema` lists them) about an entity.

        run.paused and run.resumed, for example, are about the run itself: state("mine", "run.paused", "mine", {"reason": "…"}).
        The same id is one fact, however often it is stated; without one every call states another.
        IntakeError when it is refused; TimeoutError when the outcome is unknown.
        """
        await self.open()
        return await within(self.intake.state(run, type, entity, data, id=id), self.timeout, f"state {type} of {entity}")

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
        base: str | os.PathLike[str] | None = None,
        allow: Sequence[str] = (),
        timeout: float | None = None,
    ) -> int | None:
        """Publish weights as a version of a policy, and wait until inference servers may load it; the version.

        weights: arrays or torch tensors by name (a state_dict; bfloat16 too), or the path of a .safetensors file or of a folder
        of them, with tokenizer and configuration beside. Arrays are written as safetensors files of at most 512 MiB. Where tensors
        lie in pieces on several processes (DTensor), each process must call this: that of rank 0 publishes, and the others get None.
        run, through_step: the run and the last of its feed's steps that the weights were trained on.
        version: versions only grow. None: one more than the last. The same version with the same bytes may be repeated; with
        others it is WeightsRejected.
        base: the files of the version that was published last, in a folder: only a delta is uploaded then, and the publisher makes
        the files of it. Where it does not fit, or the delta has more than 70 % of their bytes, the files are uploaded after all.
        It needs the package xxhash and room for the delta in the system's folder for temporary files.
        allow: what the publisher would refuse otherwise: "not_finite" (NaN and infinities), "empty" (tensors without elements),
        "other_tensors" (other names, types or shapes than the version before), "gap" (a version further on than steps were trained).
        timeout: seconds until it is published; None waits, since large weights take as long as they take.
        """
        gathered = whole(weights)
        if gathered is None:
            return None
        await self.open()
        call = publishing.publish(self._opened_plane, policy, gathered, run, version, through_step, dict(metadata or {}), base, allow)
        return await within(call, timeout, f"publish weights of policy {policy}")

    async def published(self, policy: str) -> Version | None:
        """The version of a policy that was published last; None before the first."""
        await self.open()
        return await within(versions.latest(self._opened_plane, policy), self.timeout, f"look for weights of policy {policy}")

    async def versions(self, policy: str, after: int = 0) -> AsyncGenerator[Version, None]:
        """The last published version of a policy, if it is behind `after`, and all that follow, without end.

        This is the loop of an inference server. A version that was replaced by a newer one while another was loaded is left out. RolledBack
        where one that was given is not the policy's any more.

            async for version in client.versions("mine"):
                engine.load(version.download(f"/models/mine-{version.version}"))
                await client.activated("mine", version.version)
        """
        await self.open()
        async with aclosing(versions.follow(self._opened_plane, policy, after)) as published:
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

    async def mark(self, run: str, rollout: str, text: str = "", *, marked: bool = True) -> Answer:
        """Mark a rollout for other people, with a comment, or take the mark away. No trainer gets it, and nothing is decided by it."""
        return await self.state(run, "mark.recorded", rollout, {"marked": marked, "text": text} if text else {"marked": marked})

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

    async def scored(self, run: str, after: int = 0) -> AsyncGenerator[str, None]:
        """The rollouts of a run with a reward, and all that follow, without end. after: a sequence of the log to begin behind.

        This is the loop of a teacher outside.

            async for rollout in client.scored("mine"):
                await client.teach("mine", rollout, "big", model.score)
        """
        await self.open()
        async with aclosing(self.log.follow(run, subject(run, "rollout.scored", "*"), after + 1)) as facts:
            async for fact in facts:
                if not fact.data.get("text_only"):
                    yield fact.entity

    async def trajectory(self, run: str, rollout: str) -> pa.Table:
        """The messages of a rollout that has finished, with their tokens (schemas/arrow.md names the columns). NotFound before that.

        A product reads here what its agent did, before a user has judged it.
        """
        await self.open()
        found = hints.trajectory(self._opened_plane, run, rollout, rewarded=False)
        return (await within(found, self.timeout, f"read rollout {rollout}"))[1]

    async def hint(self, run: str, rollout: str, by: str, given: Iterable[hints.Hint]) -> Answer:
        """State where a rollout that has its reward went wrong, as hints; none says that nothing was found.

        by: the name by which a feed or a teacher of the run takes hints. given: up to 16, about tokens of their own each.
        The same may be stated again; others of the same name are an IntakeError. NotFound before the reward. ValueError for tokens
        that a turn has not sampled.
        """
        await self.open()
        return await within(hints.state(self._opened_plane, run, rollout, by, given), self.timeout, f"give hints about rollout {rollout}")

    async def teach(
        self,
        run: str,
        rollout: str,
        teacher: str,
        score: teaching.Score,
        *,
        tokenize: hints.Tokenize | None = None,
        model: str = "",
        version: str = "",
        timeout: float | None = None,
    ) -> Answer:
        """State how likely a teacher of the run, one that has no url, finds each token of a rollout that has its reward.

        score: is called with the token ids of each sample of the rollout, int32 [S], in a thread, and gives their natural
        log-probabilities at temperature 1: [S], of which the first does not count, or [S - 1] without it. For a teacher that takes hints
        these are, for each hint, the sample up to the end of its span with the hint inserted, and only what is said of the span counts.
        tokenize: makes the tokens of hints that have none.
        model, version: what the model and its weights are called; for the record.
        The same may be stated again; other values of the same teacher are a IntakeError. NotFound before the reward.
        timeout: seconds; None waits, since a model takes as long as it takes.
        """
        await self.open()
        teachers = (await self._kept(run)).get("teachers") or []
        hinter = next((t.get("hints", "") for t in teachers if t["name"] == teacher), "")
        work = teaching.teach(self._opened_plane, run, rollout, teacher, hinter, score, tokenize, model, version)
        return await within(work, timeout, f"teach rollout {rollout}")

    async def _user(self, run: str, session: str, consent: bool) -> None:
        """Refuse here what the intake would refuse of a user, so that it never leaves this process."""
        config = await self._kept(run)
        concerned = session or consent or traffic.FEATURE in (config.get("features") or ())
        if concerned and (why := traffic.refusal(config, session, consent)):
            raise NotTaken(f"group for run {run}: {why}")

    async def _kept(self, run: str) -> dict[str, Any]:
        """The configuration of a run, which never changes, read once."""
        if run not in self._configs:
            self._configs[run] = await self.config(run)
        return self._configs[run]

    async def publish_group(
        self,
        run: str,
        *,
        group: str,
        task: str,
        trajectories: Sequence[Trajectory],
        policy_version: int = 0,
        session: str = "",
        consent: bool = False,
        deadline: float | None = None,
    ) -> list[str]:
        """Hand in a whole group of rollouts that ran elsewhere; their ids.

        group: a name of your choice (letters, digits, _); on the log it begins with x. task: a task of the run, or any name where the
        run has none. policy_version: of the run when the group began. session, consent: of the user whose session it is, in runs that
        take traffic; see takes, and NotTaken. deadline: seconds until a rollout without an outcome fails; None: limits.timeout of the
        run, which is the most. A user's feedback or a verifier may come late. The same call may be repeated, in another process too.
        """
        await self._user(run, session, consent)
        seconds = outside.time_of(await self._kept(run), deadline)
        opened = outside.Group(group, task, len(trajectories), policy_version, session, consent)
        work = outside.hand_in(self._opened_plane, run, opened, dict(enumerate(trajectories)), seconds)
        return await within(work, self.timeout, f"hand in group {group}")

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
        failure_class: str = "internal",
        session: str = "",
        consent: bool = False,
        deadline: float | None = None,
    ) -> str:
        """Hand in one rollout of a group of `size` that ran elsewhere; its id.

        messages: the conversation with its tokens, see Message. reward: None leaves the score to the task's verifier or to
        record_feedback. policy_version: of the run when the rollout began. failure: what went wrong, in place of messages and
        reward. failure_class: the kind of that failure, a word that the books count by. session, consent: of the user whose session it
        is, in runs that take traffic; see takes, and NotTaken. A group completes when all of its members, counted from 0, are handed
        in. deadline: as for publish_group. The same call may be repeated.
        """
        await self._user(run, session, consent)
        seconds = outside.time_of(await self._kept(run), deadline)
        trajectory = Trajectory(messages, reward, components or {}, policy_version, stop_reason, failure, failure_class)
        opened = outside.Group(group, task, size, policy_version, session, consent)
        work = outside.hand_in(self._opened_plane, run, opened, {member: trajectory}, seconds)
        return (await within(work, self.timeout, f"hand in member {member} of group {group}"))[0]

    async def takes(self, run: str, session: str, *, consent: bool) -> bool:
        """Whether a run takes the traffic of a user's session: by its rate, its rule about consent, and its features.

        Ask it when a session begins, and send nothing of those that are left out. It follows from the session's id, so a session is in
        or out as a whole, in every process. session: the product's id of it, which tells nobody who the user is.
        """
        return not traffic.refusal(await self._kept(run), session, consent)

    async def submit_query(
        self,
        run: str,
        instruction: str,
        *,
        task: str,
        verify: bool = False,
        name: str | None = None,
        session: str = "",
        consent: bool = False,
        repository: str | os.PathLike[str] | None = None,
        commit: str | None = None,
    ) -> str:
        """Hand in a user's wish, which becomes a group of its own, taken up before the next task; its name on the log.

        task: the run's task whose workspace and tools it uses. verify: score it with that task's verifier; otherwise the reward comes
        from record_feedback. name: the same name is one query (letters, digits, - and _); None makes one up. session, consent: see takes.
        repository, commit: the user's own code in place of the task's, a folder or a Git URL, which this process fetches; see
        rondo.repository.pack. Users must have agreed, and the run must have the feature user_repositories.
        NotTaken when the run does not take it: then nothing has left this process.
        """
        config = await self._kept(run)
        if why := traffic.refusal(config, session, consent) or (repository is not None and traffic.keeps_code_out(config, consent)):
            raise NotTaken(f"query for run {run}: {why}")
        query = "q" + (name or uuid.uuid4().hex[:16])
        told: dict[str, Any] = {"instruction": instruction, "task": task, "verify": verify, "session": session, "consent": consent}
        if repository is not None:
            told["repository"] = await self._packed(repository, commit)
        await self.state(run, "query.submitted", query, told, id=query)
        return query

    async def _packed(self, repository: str | os.PathLike[str], commit: str | None) -> dict[str, Any]:
        """Upload a user's repository; how an event names it."""
        packed = await asyncio.to_thread(pack, repository, commit)
        archive = await asyncio.to_thread(put_blob, self.objects, packed.archive)
        return {"archive": archive.told(), "origin": packed.origin, "commit": packed.commit}

    async def answer(self, run: str, query: str, *, member: int = 0, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the answer to a query: the id of a member of its group, which feedback names, and the last text of that rollout.

        Failed when that rollout ended without an answer. timeout: seconds; None waits until its deadline has passed at the latest.
        """
        await self.open()
        return await within(self._answer(run, query, member), timeout, f"wait for the answer to {query}")

    async def _answer(self, run: str, query: str, member: int) -> tuple[str, str]:
        asked = await self.log.last(run, subject(run, "query.submitted", query))
        if asked is None:
            raise NotFound(f"run {run} has no query {query!r}")
        async with aclosing(self.log.follow(run, subject(run, "group.opened", "*"), asked.sequence)) as groups:
            group = await anext(g.entity async for g in groups if g.data["task"] == query)
        rollout = f"{group}-{member}"
        async with aclosing(self.log.follow(run, subject(run, "rollout.*", rollout), asked.sequence)) as facts:
            end = await anext(f async for f in facts if f.type in ("rollout.finished", "rollout.failed"))
        if end.type == "rollout.failed":
            raise Failed(f"rollout {rollout}: {end.data['stage']}: {end.data['class']}: {end.data.get('message', '')}")
        turn = await self.log.last(run, subject(run, "rollout.turn_sampled", rollout) + ".*")
        return rollout, str(turn.data.get("content", "")) if turn else ""

    async def _keeps_code_out(self, run: str, rollout: str) -> str:
        """Why a run takes no repository of the user whose query a rollout answers; "" when it does."""
        opened = await self.log.last(run, subject(run, "group.opened", rollout.rpartition("-")[0]))
        query = await self.log.last(run, subject(run, "query.submitted", opened.data["task"])) if opened else None
        if query is None:
            return "it answers no query"
        return traffic.keeps_code_out(await self._kept(run), bool(query.data.get("consent")))

    async def record_feedback(
        self,
        run: str,
        rollout: str,
        signal: str,
        *,
        reward: float | None = None,
        text: str = "",
        repository: str | os.PathLike[str] | None = None,
        commit: str | None = None,
        id: str | None = None,
    ) -> Answer:
        """State what a user made of a rollout: accept (reward 1), reject (0), score with a reward, or follow_up.

        A follow_up is a remark, unless it has a reward: what the user said next has told how good the answer was. In runs with the
        feature feedback_rewards this is the reward of a rollout whose task has no verifier; one that was scored already keeps its reward.
        repository, commit: the user's code in the end, as for submit_query, with what was changed of the answer to a query: `rondo tasks
        import sessions` makes a task of it. The user must have agreed when the query was submitted. NotTaken when the run takes no
        repositories: then nothing has left this process.
        """
        told: dict[str, Any] = {"signal": signal, "text": text}
        if reward is not None:
            told["reward"] = reward
        if repository is not None:
            await self.open()
            if why := await within(self._keeps_code_out(run, rollout), self.timeout, f"read what rollout {rollout} answers"):
                raise NotTaken(f"repository of rollout {rollout}: {why}")
            told["repository"] = await self._packed(repository, commit)
        return await self.state(run, "feedback.recorded", rollout, told, id=id)
