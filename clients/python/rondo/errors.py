"""What can go wrong between a trainer and its plane. Waiting that takes too long is the builtin TimeoutError."""

from __future__ import annotations

__all__ = [
    "ConnectError",
    "Damaged",
    "Failed",
    "GatewayError",
    "IntakeError",
    "NotFound",
    "NotTaken",
    "PermissionDenied",
    "RolledBack",
    "RondoError",
    "WeightsRejected",
]


class RondoError(Exception):
    """Any error of this package's own."""


class ConnectError(RondoError):
    """No plane can be reached, or it does not let this client in."""


class PermissionDenied(RondoError):
    """The credentials do not allow what was asked; the message names the subject. Asking again is of no use."""


class NotFound(RondoError):
    """There is no such run, feed, fact or object."""


class NotTaken(RondoError):
    """The run does not take a user's traffic; the message says why. Nothing was sent."""


class Failed(RondoError):
    """A rollout ended without an outcome that could be used."""


class Damaged(RondoError):
    """An object's bytes are not those that the log names, or are no valid file."""


class GatewayError(RondoError):
    """The gateway refused a request, or gave no answer: status is that of HTTP, 0 for no answer, and code names the reason."""

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class IntakeError(RondoError):
    """The intake refused a fact. Stating it again unchanged is of no use."""


class RolledBack(RondoError):
    """The log does not hold any more what was read of it: its server was restored from an older copy. Look at `rondo doctor`."""


class WeightsRejected(RondoError):
    """The weight publisher did not publish a version; the message says why."""


def missing(key: str) -> NotFound:
    """The error of both stores for an object that is not there."""
    return NotFound(f"{key} is not in the store")


def too_large(key: str, size: int, limit: int) -> Damaged:
    """The error of both stores for an object that is larger than the log says."""
    return Damaged(f"{key}: {size} bytes, expected {limit}")
