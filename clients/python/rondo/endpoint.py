"""Where a plane's log and store are."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from .errors import ConnectError

__all__ = ["Endpoint", "find", "redacted"]


@dataclass(frozen=True)
class Endpoint:
    """The NATS servers (comma-separated URLs) and the object store (a directory or an s3:// URL) of a plane."""

    nats: str
    store: str


def find(directory: str | os.PathLike[str]) -> Endpoint:
    """Read what the plane that runs in a directory tells of itself. It changes whenever that plane is restarted."""
    path = Path(directory) / "endpoint.json"
    try:
        told = json.loads(path.read_text())
        return Endpoint(nats=str(told["nats"]), store=str(told["store"]))
    except FileNotFoundError:
        raise ConnectError(f"no plane runs in {directory}: start one with `rondo up --dir {directory}`") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConnectError(f"read {path}: {error}") from error


def redacted(urls: str) -> str:
    """Server URLs without their passwords and tokens."""
    return ",".join(url if "@" not in url else "…@" + url.rsplit("@", 1)[1] for url in urls.split(","))
