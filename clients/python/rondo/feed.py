"""A feed: one trainer's sequence of batches."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any

from .batch import Batch, open_batch
from .client import STARTING, AsyncClient
from .connection import end, within
from .errors import NotFound, RondoError
from .facts import Fact, subject
from .gap import LogprobGap
from .objects import Ref, fetch
from .weights import Weights, whole

__all__ = ["AsyncFeed"]

log = logging.getLogger("rondo")

#: Largest batch file in bytes; the writer's own limit.
MAX_FILE = 256 << 20
#: Tries to read a file before iteration fails; a store behind a network stumbles now and then.
TRIES = 5


class AsyncFeed:
    """The batches of a feed of a run, for one rank, from the step behind `after` on.

    Iterating gives batches without end, or until the run is closed. The next ones are fetched, verified and opened while
    the trainer works. State `consumed` when a batch is taken (the feed goes on) and `checkpointed` when it is in a checkpoint.

    after: the step that the trainer's checkpoint holds; 0 when there is none. When the log says that more was consumed, opening
    the feed states `rewound`, and gives the steps behind `after` again, byte for byte the same. So a trainer that was killed
    anywhere loses and repeats nothing if it does this in this order:

        step, weights = load_checkpoint()                                # (0, initial weights) at first
        async with AsyncFeed("mine", "trainer", after=step) as feed:
            if step:                                                     # it may have been killed before it said so
                await feed.publish_weights(weights, version=step, through_step=step)
            async for batch in feed:
                await feed.consumed(batch)
                weights = train(weights, batch)
                save_checkpoint(batch.step, weights)                     # write, sync, rename
                await feed.publish_weights(weights, version=batch.step, through_step=batch.step)
                await feed.checkpointed(batch)

    Where checkpoints are rarer than steps and training is not deterministic to the bit, leave `version` out: a version that
    was published is never replaced, so weights trained again get the next number.

    observe: only look, for an evaluation or a notebook: nothing is stated or published, and the feed stays where its trainer is.
    rank: data-parallel rank; each has its own file of every batch. Only rank 0 states facts and publishes: the same calls do
    nothing on other ranks. prefetch: batches that are ready before they are asked for. timeout: seconds that the next batch may
    take before TimeoutError; None waits. images: the trainer gives its model the images of each sample (`Batch.images`). A run whose model
    sees images (`vision: true`) refuses one that does not say so: without them its tokens mean something else.
    """

    def __init__(
        self,
        run: str,
        feed: str,
        *,
        client: AsyncClient | None = None,
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
        if after < 0 or rank < 0 or prefetch < 1:
            raise ValueError(f"after {after} and rank {rank} must not be negative, prefetch {prefetch} must be positive")
        self.run, self.feed, self.rank = run, feed, rank
        self._speaks = rank == 0 and not observe
        self._sees = images or observe
        self._client = client or AsyncClient(dir, nats=nats, store=store, source=f"python-{feed}"[:64], wait=STARTING)
        self._own = client is None
        self._after, self._prefetch, self._timeout = after, prefetch, timeout
        self._session = uuid.uuid4().hex[:12]
        self._opening, self._closed = asyncio.Lock(), False
        self._config: dict[str, Any] = {}
        self._queue: asyncio.Queue[Batch | BaseException | None] = asyncio.Queue(prefetch)
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> AsyncFeed:
        """Connect, look where the feed stands, and go back to the checkpoint if it stands behind it."""
        async with self._opening:
            if self._closed:
                raise RondoError(f"feed {self.feed} of run {self.run} is closed")
            if self._reader is None:
                await self._client.open()
                self._config = await self._client.config(self.run)
                self._check_place()
                if self._speaks:
                    await self._return()
                self._start()
        return self

    async def close(self) -> None:
        """Stop fetching, and disconnect unless the client is the caller's."""
        self._closed = True
        await self._stop()
        if self._own:
            await self._client.close()

    async def __aenter__(self) -> AsyncFeed:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __aiter__(self) -> AsyncFeed:
        return self

    async def __anext__(self) -> Batch:
        await self.open()
        item = await within(self._queue.get(), self._timeout, f"next batch of feed {self.feed} of run {self.run}")
        if isinstance(item, Batch):
            return item
        self._queue.put_nowait(item)  # asked again, the answer is the same
        if item is None:
            raise StopAsyncIteration
        raise item

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's configuration, once the feed is open."""
        return self._config

    @property
    def policy(self) -> str:
        """Name of the policy that the run trains, once the feed is open."""
        return str(self._config["policy"])

    async def consumed(self, batch: Batch | int, *, logprob_gap: LogprobGap | None = None, stale: Sequence[str] = ()) -> None:
        """State that a step was taken: the feed may go on. It waits until the fact is on the log.

        logprob_gap: what `batch.logprob_gap` computed, None for nothing. It may be stated later, by a second call for the same step.
        stale: ids of rollouts of the batch that the trainer leaves out as too old, as `batch.stale` names them. The run's books count
        them as stale, not as trained. They may be stated later, too, all at once; IntakeError for one that is not in the batch.
        """
        await self.open()
        more: dict[str, Any] = {"logprob_gap": logprob_gap._asdict()} if logprob_gap else {}
        if stale:
            more["stale"] = list(stale)
        await self._state("batch.consumed", "step", _step(batch), **more)

    async def checkpointed(self, batch: Batch | int) -> None:
        """State that the trainer's state through a step is saved."""
        await self.open()
        await self._state("batch.checkpointed", "step", _step(batch))

    async def rewound(self, batch: Batch | int) -> None:
        """Go back to a step: the ones behind it come again. For a trainer that goes back to a checkpoint while it runs."""
        await self.open()
        await self._stop()
        self._after = _step(batch)
        self._session = uuid.uuid4().hex[:12]  # what was stated before may be stated again
        await self._state("batch.rewound", "to_step", self._after)
        self._queue = asyncio.Queue(self._prefetch)
        self._start()

    async def publish_weights(
        self,
        weights: Weights,
        *,
        version: int | None = None,
        through_step: int,
        metadata: Mapping[str, str] | None = None,
        base: str | os.PathLike[str] | None = None,
        allow: Sequence[str] = (),
    ) -> int | None:
        """Publish weights of the run's policy that were trained through a step; see AsyncClient.publish_weights."""
        gathered = self.gathered(weights)
        await self.open()
        if gathered is None:
            return None
        return await self._client.publish_weights(
            self.policy, gathered, run=self.run, version=version, through_step=through_step, metadata=metadata, base=base, allow=allow
        )

    def gathered(self, weights: Weights) -> Weights | None:
        """The weights that this rank publishes; None for a rank that publishes nothing. It takes part in gathering them all the same."""
        gathered = whole(weights)
        if not self._speaks:
            return None
        if gathered is None:
            raise ValueError("the feed of rank 0 publishes, and must belong to the process of rank 0 of torch.distributed")
        return gathered

    def _check_place(self) -> None:
        feeds = {f["name"]: f for f in self._config.get("feeds", [])}
        if self.feed not in feeds:
            raise NotFound(f"run {self.run} has no feed {self.feed!r}, but {', '.join(sorted(feeds))}")
        if self._config.get("vision") and not self._sees:
            raise RondoError(
                f"run {self.run} says vision: true, so that its samples have images: "
                "give the model those of Batch.images, and open the feed with images=True"
            )
        ranks = max(1, int(feeds[self.feed].get("ranks", 0)))
        if self.rank >= ranks:
            raise RondoError(f"rank {self.rank}: feed {self.feed} of run {self.run} has {ranks} ranks, counted from 0")

    async def _last(self, type: str, field: str) -> tuple[int, int]:
        fact = await self._client.log.last(self.run, subject(self.run, type, self.feed))
        return (fact.sequence, int(fact.data[field])) if fact else (0, 0)

    async def _return(self) -> None:
        """Make the log agree with the checkpoint."""
        _, ready = await self._last("batch.ready", "step")
        if self._after > ready:
            raise RondoError(
                f"the checkpoint holds step {self._after}, but feed {self.feed} of run {self.run} has only reached {ready}: "
                "does it belong to another run?"
            )
        consumed_at, consumed = await self._last("batch.consumed", "step")
        rewound_at, rewound = await self._last("batch.rewound", "to_step")
        if rewound_at > consumed_at:
            consumed = min(consumed, rewound)
        if consumed > self._after:
            await self._state("batch.rewound", "to_step", self._after)
        elif consumed < self._after:
            await self._state("batch.consumed", "step", self._after)

    async def _state(self, type: str, field: str, step: int, **more: Any) -> None:
        if self._speaks:
            identity = "-".join((self._session, type.partition(".")[2], str(step), *more))
            await self._client.intake.state(self.run, type, self.feed, {field: step, **more}, id=identity)

    def _start(self) -> None:
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _stop(self) -> None:
        if self._reader is not None:
            await end(self._reader)
            self._reader = None

    async def _read(self) -> None:
        """Fill the queue, and end it with None or with what went wrong."""
        end: BaseException | None = None
        try:
            async with aclosing(self._ready()) as facts:
                async for fact in facts:
                    await self._queue.put(await self._fetch(fact))
        except Exception as error:
            end = error
        await self._queue.put(end)

    async def _ready(self) -> AsyncGenerator[Fact, None]:
        """The facts batch.ready behind the checkpoint, until the run is closed."""
        filter, closed = subject(self.run, "batch.ready", self.feed), asyncio.Event()
        waiting = asyncio.get_running_loop().create_task(self._closing(closed))
        try:
            async with aclosing(self._client.log.follow(self.run, filter, await self._place(), closed)) as facts:
                given = self._after
                async for fact in facts:
                    if int(fact.data["step"]) > given:
                        given = int(fact.data["step"])
                        yield fact
        finally:
            await end(waiting)

    async def _closing(self, closed: asyncio.Event) -> None:
        """Say when the run is closed, and its feeder has had time for a batch that it had decided on."""
        async with aclosing(self._client.log.follow(self.run, subject(self.run, "run.closed", self.run), 1)) as facts:
            async for _ in facts:
                await asyncio.sleep(2.0)
                closed.set()
                return

    async def _place(self) -> int:
        """A sequence from which the steps behind the checkpoint come: steps and sequences both grow, so halve the range."""
        filter = subject(self.run, "batch.ready", self.feed)
        high, last = await self._last("batch.ready", "step")
        if self._after == 0:
            return 1
        if last <= self._after:
            return high + 1
        low = 1
        while high - low > 16:
            middle = (low + high) // 2
            fact = await self._client.log.next(self.run, filter, middle)
            if fact is not None and int(fact.data["step"]) <= self._after:
                low = fact.sequence + 1
            else:
                high = middle
        return low

    async def _fetch(self, fact: Fact) -> Batch:
        """Read this rank's file of a batch, and verify it."""
        refs = [Ref.parse(told) for told in fact.data.get("files", [])]
        name = f"batch {fact.data['step']} of feed {self.feed}"
        if self.rank >= len(refs):
            raise RondoError(f"{name} has files for {len(refs)} ranks, none for rank {self.rank}")
        ref = refs[self.rank]
        if ref.size > MAX_FILE:
            raise RondoError(f"{name}: {ref.key} has {ref.size} bytes (limit {MAX_FILE})")
        for left in range(TRIES - 1, -1, -1):
            try:
                data = await asyncio.to_thread(fetch, self._client.objects, ref)
                break
            except (OSError, NotFound) as error:
                if left == 0:
                    raise
                log.warning("%s: trying again: %s", name, error)
                await asyncio.sleep(0.2 * 2 ** (TRIES - left))
        return await asyncio.to_thread(open_batch, data, fact.data, store=self._client.objects)


def _step(batch: Batch | int) -> int:
    return batch.step if isinstance(batch, Batch) else batch
