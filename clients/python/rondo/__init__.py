"""Rondo in Python: the batches of a feed, and everything that a trainer, a harness or a product submits to the intake.

    with rondo.Feed("mine", "trainer", dir="/srv/rondo", after=step) as feed:
        for batch in feed:
            feed.consumed(batch)
            …

`Feed` and `Client` block; `AsyncFeed` and `AsyncClient` are the same on asyncio. See Feed for how a trainer resumes.
"""

from .batch import Batch, open_batch
from .client import AsyncClient
from .columns import Ragged, Spans
from .errors import ConnectError, Damaged, DoorError, Failed, NotFound, NotTaken, PermissionDenied, RondoError, WeightsRejected
from .feed import AsyncFeed
from .gap import LogprobGap
from .intake import Answer
from .sync import Client, Feed
from .token_columns import SamplingMask, TokenColumn
from .traffic import sampled
from .trajectory import Message, Trajectory
from .versions import Version

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncFeed",
    "Batch",
    "Client",
    "ConnectError",
    "Damaged",
    "DoorError",
    "Failed",
    "Feed",
    "LogprobGap",
    "Message",
    "NotFound",
    "NotTaken",
    "PermissionDenied",
    "Ragged",
    "RondoError",
    "SamplingMask",
    "Spans",
    "TokenColumn",
    "Trajectory",
    "Version",
    "WeightsRejected",
    "open_batch",
    "sampled",
]
