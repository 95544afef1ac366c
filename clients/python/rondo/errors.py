"""What can go wrong between a trainer and its plane. Waiting that takes too long is the builtin TimeoutError."""

from __future__ import annotations

__all__ = ["ConnectError", "Damaged", "DoorError", "Failed", "NotFound", "NotTaken", "RondoError", "WeightsRejected"]


class RondoError(Exception):
    """Any error of this package's own."""


class ConnectError(RondoError):
    """No plane can be reached, or it does not let this client in."""


class NotFound(RondoError):
    """There is no such run, feed, fact or object."""


class NotTaken(RondoError):
    """The run does not take a user's traffic; the message says why. Nothing was sent."""


class Failed(RondoError):
    """A rollout ended without an outcome that could be used."""


class Damaged(RondoError):
    """An object's bytes are not those that the log names, or are no valid file."""


class DoorError(RondoError):
    """The door refused a fact. Stating it again unchanged is of no use."""


class WeightsRejected(RondoError):
    """The weight publisher did not publish a version; the message says why."""
