"""What can go wrong between a trainer and its plane. Waiting that takes too long is the builtin TimeoutError."""

from __future__ import annotations

__all__ = ["ConnectError", "Damaged", "DoorError", "NotFound", "RondoError", "WeightsRejected"]


class RondoError(Exception):
    """Any error of this package's own."""


class ConnectError(RondoError):
    """No plane can be reached, or it does not let this client in."""


class NotFound(RondoError):
    """There is no such run, feed, fact or object."""


class Damaged(RondoError):
    """An object's bytes are not those that the log names, or are no valid file."""


class DoorError(RondoError):
    """The door refused a fact. Stating it again unchanged is of no use."""


class WeightsRejected(RondoError):
    """The weight publisher did not publish a version; the message says why."""
