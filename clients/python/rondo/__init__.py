"""Rondo in Python: the batches of a feed, and everything that a trainer, a harness or a product submits to the intake.

    with rondo.Feed("mine", "trainer", dir="/srv/rondo", after=step) as feed:
        for batch in feed:
            feed.consumed(batch)
            …

`rollout` gives your own harness a model, a workspace and a verdict. `Feed` and `Client` block; `AsyncFeed` and `AsyncClient` are the
same on asyncio. See Feed for how a trainer resumes.
"""

from .batch import Batch, open_batch
from .client import AsyncClient
from .columns import Ragged, Spans
from .errors import (
    ConnectError,
    Damaged,
    Failed,
    GatewayError,
    IntakeError,
    NotFound,
    NotTaken,
    PermissionDenied,
    RolledBack,
    RondoError,
    WeightsRejected,
)
from .evidence import GradedTests, RecordedMessage, RecordedRollout, RecordedVerdict, UnmetTest
from .feed import AsyncFeed
from .frames import RunTables, read
from .gap import LogprobGap
from .harness import Executed, Rollout, Sandbox, Turn, Verdict, rollout
from .hints import Hint, HintSpan
from .images import Image
from .intake import Answer
from .sync import Client, Feed
from .token_columns import SamplingMask, TokenColumn
from .traffic import sampled
from .trajectory import Message, Trajectory
from .versions import Version
from .weights import gather

__version__ = "0.1.0"  # of the release; its tag, the wheels and the chart have the same


__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncFeed",
    "Batch",
    "Client",
    "ConnectError",
    "Damaged",
    "Executed",
    "Failed",
    "Feed",
    "GatewayError",
    "GradedTests",
    "Hint",
    "HintSpan",
    "Image",
    "IntakeError",
    "LogprobGap",
    "Message",
    "NotFound",
    "NotTaken",
    "PermissionDenied",
    "Ragged",
    "RecordedMessage",
    "RecordedRollout",
    "RecordedVerdict",
    "RolledBack",
    "Rollout",
    "RondoError",
    "RunTables",
    "SamplingMask",
    "Sandbox",
    "Spans",
    "TokenColumn",
    "Trajectory",
    "Turn",
    "UnmetTest",
    "Verdict",
    "Version",
    "WeightsRejected",
    "gather",
    "open_batch",
    "read",
    "rollout",
    "sampled",
]
