"""Client and feed for programs that are not on asyncio: the same calls, which block."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from .batch import Batch
from .client import STARTING, WAIT, AsyncClient
from .feed import AsyncFeed
from .gap import LogprobGap
from .hints import Hint, Tokenize
from .intake import Answer
from .loop import LoopThread
from .teaching import Score
from .trajectory import Message, Trajectory
from .versions import Version
from .weights import Weights, whole

__all__ = ["Client", "Feed"]

T = TypeVar("T")


class Client:
    """AsyncClient for programs that are not on asyncio. It connects at once, and may be used by several threads."""

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
        self.asynchronous = AsyncClient(dir, nats=nats, store=store, creds=creds, ca=ca, source=source, wait=wait, timeout=timeout)
        self.loop = LoopThread(self.asynchronous.close)
        try:
            self.loop.run(self.asynchronous.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect."""
        self.loop.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def state(self, run: str, type: str, entity: str, data: Mapping[str, Any], *, id: str | None = None) -> Answer:
        """See AsyncClient.state."""
        return self.loop.run(self.asynchronous.state(run, type, entity, data, id=id))

    def config(self, run: str) -> dict[str, Any]:
        """See AsyncClient.config."""
        return self.loop.run(self.asynchronous.config(run))

    def pause(self, run: str, reason: str = "") -> Answer:
        """See AsyncClient.pause."""
        return self.loop.run(self.asynchronous.pause(run, reason))

    def resume(self, run: str, reason: str = "") -> Answer:
        """See AsyncClient.resume."""
        return self.loop.run(self.asynchronous.resume(run, reason))

    def publish_weights(
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
        """See AsyncClient.publish_weights."""
        gathered = whole(weights)  # in this thread, whose GPU it is
        if gathered is None:
            return None
        call = self.asynchronous.publish_weights(
            policy,
            gathered,
            run=run,
            version=version,
            through_step=through_step,
            metadata=metadata,
            base=base,
            allow=allow,
            timeout=timeout,
        )
        return self.loop.run(call)

    def published(self, policy: str) -> Version | None:
        """See AsyncClient.published."""
        return self.loop.run(self.asynchronous.published(policy))

    def versions(self, policy: str, after: int = 0) -> Iterator[Version]:
        """See AsyncClient.versions."""
        published = self.asynchronous.versions(policy, after)
        while True:
            yield self.loop.run(_following(published))

    def activated(self, policy: str, version: int, replica: str | None = None) -> Answer:
        """See AsyncClient.activated."""
        return self.loop.run(self.asynchronous.activated(policy, version, replica))

    def invalidate(self, run: str, rollout: str, reason: str) -> Answer:
        """See AsyncClient.invalidate."""
        return self.loop.run(self.asynchronous.invalidate(run, rollout, reason))

    def mark(self, run: str, rollout: str, text: str = "", *, marked: bool = True) -> Answer:
        """See AsyncClient.mark."""
        return self.loop.run(self.asynchronous.mark(run, rollout, text, marked=marked))

    def annotate(
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
        """See AsyncClient.annotate."""
        call = self.asynchronous.annotate(
            run, rollout, turn=turn, start=start, length=length, reward=reward, text=text, values=values, id=id
        )
        return self.loop.run(call)

    def scored(self, run: str, after: int = 0) -> Iterator[str]:
        """See AsyncClient.scored."""
        rollouts = self.asynchronous.scored(run, after)
        while True:
            yield self.loop.run(_following(rollouts))

    def trajectory(self, run: str, rollout: str) -> pa.Table:
        """See AsyncClient.trajectory."""
        return self.loop.run(self.asynchronous.trajectory(run, rollout))

    def hint(self, run: str, rollout: str, by: str, given: Iterable[Hint]) -> Answer:
        """See AsyncClient.hint."""
        return self.loop.run(self.asynchronous.hint(run, rollout, by, given))

    def teach(
        self,
        run: str,
        rollout: str,
        teacher: str,
        score: Score,
        *,
        tokenize: Tokenize | None = None,
        model: str = "",
        version: str = "",
        timeout: float | None = None,
    ) -> Answer:
        """See AsyncClient.teach."""
        call = self.asynchronous.teach(run, rollout, teacher, score, tokenize=tokenize, model=model, version=version, timeout=timeout)
        return self.loop.run(call)

    def publish_group(
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
        """See AsyncClient.publish_group."""
        call = self.asynchronous.publish_group(
            run,
            group=group,
            task=task,
            trajectories=trajectories,
            policy_version=policy_version,
            session=session,
            consent=consent,
            deadline=deadline,
        )
        return self.loop.run(call)

    def publish_trajectory(
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
        """See AsyncClient.publish_trajectory."""
        call = self.asynchronous.publish_trajectory(
            run,
            group=group,
            member=member,
            size=size,
            task=task,
            messages=messages,
            reward=reward,
            components=components,
            policy_version=policy_version,
            stop_reason=stop_reason,
            failure=failure,
            failure_class=failure_class,
            session=session,
            consent=consent,
            deadline=deadline,
        )
        return self.loop.run(call)

    def takes(self, run: str, session: str, *, consent: bool) -> bool:
        """See AsyncClient.takes."""
        return self.loop.run(self.asynchronous.takes(run, session, consent=consent))

    def submit_query(
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
        """See AsyncClient.submit_query."""
        call = self.asynchronous.submit_query(
            run, instruction, task=task, verify=verify, name=name, session=session, consent=consent, repository=repository, commit=commit
        )
        return self.loop.run(call)

    def answer(self, run: str, query: str, *, member: int = 0, timeout: float | None = None) -> tuple[str, str]:
        """See AsyncClient.answer."""
        return self.loop.run(self.asynchronous.answer(run, query, member=member, timeout=timeout))

    def record_feedback(
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
        """See AsyncClient.record_feedback."""
        call = self.asynchronous.record_feedback(
            run, rollout, signal, reward=reward, text=text, repository=repository, commit=commit, id=id
        )
        return self.loop.run(call)


class Feed:
    """AsyncFeed for programs that are not on asyncio. It opens at once.

    A trainer that was killed anywhere loses and repeats nothing if it does this in this order:

        step, weights = load_checkpoint()                          # (0, initial weights) at first
        with rondo.Feed("mine", "trainer", dir="/srv/rondo", after=step) as feed:
            if step:                                               # it may have been killed before it said so
                feed.publish_weights(weights, version=step, through_step=step)
            for batch in feed:
                feed.consumed(batch)                               # lets the feed go on
                weights = train(weights, batch)
                save_checkpoint(batch.step, weights)               # write, sync, rename
                feed.publish_weights(weights, version=batch.step, through_step=batch.step)
                feed.checkpointed(batch)

    See AsyncFeed for the arguments, and for trainers whose checkpoints are rarer than their steps.
    """

    def __init__(
        self,
        run: str,
        feed: str,
        *,
        client: Client | None = None,
        dir: str | os.PathLike[str] | None = None,
        nats: str | None = None,
        store: str | None = None,
        rank: int = 0,
        observe: bool = False,
        after: int = 0,
        prefetch: int = 2,
        timeout: float | None = None,
        images: bool = False,
    ) -> None:
        self._own = Client(dir, nats=nats, store=store, source=f"python-{feed}"[:64], wait=STARTING) if client is None else None
        chosen = client or self._own
        assert chosen is not None
        self.client = chosen
        try:
            self.asynchronous = AsyncFeed(
                run,
                feed,
                client=chosen.asynchronous,
                rank=rank,
                observe=observe,
                after=after,
                prefetch=prefetch,
                timeout=timeout,
                images=images,
            )
            chosen.loop.run(self.asynchronous.open())
        except BaseException:
            if self._own is not None:
                self._own.close()
            raise

    def close(self) -> None:
        """Stop fetching, and disconnect unless the client is the caller's."""
        self.client.loop.run(self.asynchronous.close())
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Batch:
        batch = self.client.loop.run(_next(self.asynchronous))
        if batch is None:
            raise StopIteration
        return batch

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's configuration."""
        return self.asynchronous.config

    @property
    def policy(self) -> str:
        """Name of the policy that the run trains."""
        return self.asynchronous.policy

    def consumed(self, batch: Batch | int, *, logprob_gap: LogprobGap | None = None, stale: Sequence[str] = ()) -> None:
        """See AsyncFeed.consumed."""
        self.client.loop.run(self.asynchronous.consumed(batch, logprob_gap=logprob_gap, stale=stale))

    def checkpointed(self, batch: Batch | int) -> None:
        """See AsyncFeed.checkpointed."""
        self.client.loop.run(self.asynchronous.checkpointed(batch))

    def rewound(self, batch: Batch | int) -> None:
        """See AsyncFeed.rewound."""
        self.client.loop.run(self.asynchronous.rewound(batch))

    def publish_weights(
        self,
        weights: Weights,
        *,
        version: int | None = None,
        through_step: int,
        metadata: Mapping[str, str] | None = None,
        base: str | os.PathLike[str] | None = None,
        allow: Sequence[str] = (),
    ) -> int | None:
        """See AsyncFeed.publish_weights."""
        gathered = self.asynchronous.gathered(weights)  # in this thread, whose GPU it is
        if gathered is None:
            return None
        call = self.asynchronous.publish_weights(
            gathered, version=version, through_step=through_step, metadata=metadata, base=base, allow=allow
        )
        return self.client.loop.run(call)


async def _next(feed: AsyncFeed) -> Batch | None:
    return await anext(feed, None)


async def _following(endless: AsyncGenerator[T, None]) -> T:
    return await anext(endless)
