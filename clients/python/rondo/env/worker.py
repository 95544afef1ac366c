"""The worker: takes a run's rollouts from the plane and has the user's code answer or rate them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from ..client import STARTING, AsyncClient
from ..connection import end
from ..errors import IntakeError
from ..facts import Fact, subject
from .environment import adapted
from .episode import Stage, play
from .lease import EPISODES, RATINGS, Lease, take
from .rating import Rater, Reward, rate
from .roles import maker, play_roles

__all__ = ["serve", "work"]

log = logging.getLogger("rondo.env")

#: Seconds after which work comes again that could not be done, as the store or the plane failed.
AGAIN = 5.0


def serve(
    run: str, *, environment: Any = None, reward: Reward | None = None, slots: int = 16, step_timeout: float = 600.0, **client: Any
) -> None:
    """Answer and rate a run's rollouts until it is closed. It blocks; `work` is the same on asyncio.

    environment: a class with reset and step, a function that makes one, or a generator function. Each episode has its own instance and
    thread.
    reward: a function of a finished rollout that gives a number, or the reward's components by their names.
    slots: episodes at once, and ratings at once. step_timeout: seconds that one reset, step or rating may take; then the rollout fails.
    client: how to reach the plane, as for rondo.Client: dir, or nats and store, and creds.

    An error of your code, or a reward that is no finite number, fails the rollout as a failure of the machine: it is never a reward of 0.
    """

    async def until_closed() -> None:
        async with AsyncClient(**{"source": "environment", "wait": STARTING, **client}) as connected:
            await work(connected, run, environment=environment, reward=reward, slots=slots, step_timeout=step_timeout)

    asyncio.run(until_closed())


async def work(
    client: AsyncClient, run: str, *, environment: Any = None, reward: Reward | None = None, slots: int = 16, step_timeout: float = 600.0
) -> None:
    """Answer and rate a run's rollouts until it is closed; see `serve`."""
    if environment is None and reward is None:
        raise ValueError("give an environment, a reward function, or both")
    config = await client.config(run)
    plane = client._opened_plane
    tasks = {task["name"]: task for task in config.get("tasks") or []}
    worker = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"[:128]
    jobs: list[tuple[str, Callable[[Fact], Awaitable[None]]]] = []
    if environment is not None:
        if not config.get("environment"):
            raise ValueError(f"run {run} has no environment: its run file names one as environment: {{name: …}}")
        tools = {tool["name"]: tool.get("parameters") or {} for tool in config["environment"].get("tools") or []}
        stage, roles = Stage(plane, run, tasks, worker, step_timeout, config["limits"], tools), config["environment"].get("roles")
        if roles:
            make_roles = maker(environment)
            jobs.append((EPISODES, lambda fact: play_roles(stage, roles, fact, make_roles)))
        else:
            make = adapted(environment)
            jobs.append((EPISODES, lambda fact: play(stage, fact, make)))
    if reward is not None:
        name = (config.get("scorer") or {}).get("function")
        if not name:
            raise ValueError(f"run {run} has no reward function: its run file names one as scorer: {{function: NAME}}")
        function, rater = reward, Rater(plane, run, name, tasks, worker, step_timeout)
        jobs.append((RATINGS, lambda fact: rate(rater, fact, function)))
    await asyncio.gather(*(_pull(client, run, consumer, handle, slots) for consumer, handle in jobs))


async def _pull(client: AsyncClient, run: str, consumer: str, handle: Callable[[Fact], Awaitable[None]], slots: int) -> None:
    """Keep some pieces of work in hand until the run is closed and none is left."""
    busy: set[asyncio.Task[None]] = set()
    try:
        while True:
            if len(busy) >= slots:
                await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
            lease = await take(client.connection, run, consumer)
            if lease is not None:
                task = asyncio.create_task(_do(client, run, lease, handle))
                busy.add(task)
                task.add_done_callback(busy.discard)
            elif not busy and await client.log.last(run, subject(run, "run.closed", run)) is not None:
                return
    finally:
        await end(*busy)


async def _do(client: AsyncClient, run: str, lease: Lease, handle: Callable[[Fact], Awaitable[None]]) -> None:
    async with lease:
        try:
            fact = await client.log.next(run, lease.subject, lease.sequence)
            if fact is not None and fact.sequence == lease.sequence:
                await handle(fact)
        except IntakeError as refused:
            log.warning("%s", refused)  # the plane goes on without it: the rollout ends at its deadline, if nobody says more
            await lease.done()
        except Exception as problem:  # the plane or the store fails: what fails in the user's code is stated
            log.warning("%s: %r; again in %g s", lease.subject, problem, AGAIN)
            await lease.later(AGAIN)
        else:
            await lease.done()
