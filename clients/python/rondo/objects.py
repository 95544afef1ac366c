"""The object store: immutable objects that the log names by key, size and SHA-256."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import Damaged, RondoError

__all__ = ["MAX_OBJECT", "Ref", "Store", "fetch", "open_store", "put_blob", "put_named"]

#: Largest object of a store in bytes.
MAX_OBJECT = 1 << 30

#: Seconds after which an object that is there already is written again, so that it is young; `rondo gc` spares what is.
REFRESH_AFTER = 3600.0

_KEY = re.compile(r"(?!.{513})[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]{0,199}(/[A-Za-z0-9_@=+-][A-Za-z0-9._@=+-]{0,199})*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Ref:
    """An object and what it must contain: its key, the SHA-256 of its bytes in hexadecimal digits, its size in bytes."""

    key: str
    sha256: str
    size: int

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Ref:
        """Read a reference as facts carry it. A key that leads out of the store, or a size beyond all limits, is Damaged."""
        try:
            ref = cls(str(told["ref"]), str(told["sha256"]), int(told["size"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"reference {str(told)[:200]}: {error!r}") from None
        if not _KEY.fullmatch(ref.key) or not _DIGEST.fullmatch(ref.sha256) or not 0 <= ref.size <= MAX_OBJECT:
            raise Damaged(f"reference {str(told)[:200]}: not a key, a SHA-256 and a size up to {MAX_OBJECT}")
        return ref

    def told(self) -> dict[str, Any]:
        """The reference as facts carry it."""
        return {"ref": self.key, "sha256": self.sha256, "size": self.size}


class Store(Protocol):
    """Where objects lie. Its calls block."""

    def get(self, key: str, limit: int) -> bytes:
        """Read an object of at most limit bytes. NotFound; Damaged where it is larger."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write an object, durably and whole, or not at all."""
        ...

    def stat(self, key: str) -> tuple[int, float] | None:
        """Bytes of an object, and when it was written, in seconds since 1970; None where there is none."""
        ...


def open_store(location: str) -> Store:
    """Open a directory (a path or file:///path) or a bucket (s3://bucket/prefix?endpoint=http://host:port&region=name).

    Credentials of a bucket are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
    """
    scheme, separator, rest = location.partition("://")
    if separator and scheme == "s3":
        from .bucket import Bucket

        return Bucket.open(location)
    if separator and scheme != "file":
        raise RondoError(f"unknown store {scheme}://: give a directory, file:///directory or s3://bucket/prefix")
    from .directory import Directory

    return Directory(rest if separator else location)


def fetch(store: Store, ref: Ref) -> bytes:
    """Read what a reference names, and verify its size and digest."""
    data = store.get(ref.key, ref.size)
    if len(data) != ref.size:
        raise Damaged(f"{ref.key}: {len(data)} bytes instead of {ref.size}")
    digest = hashlib.sha256(data).hexdigest()
    if digest != ref.sha256:
        raise Damaged(f"{ref.key}: sha256 {digest} instead of {ref.sha256}")
    return data


def put_blob(store: Store, data: bytes) -> Ref:
    """Store bytes under their own digest."""
    digest = hashlib.sha256(data).hexdigest()
    return _put(store, Ref(f"blobs/sha256/{digest[:2]}/{digest}", digest, len(data)), data)


def put_named(store: Store, prefix: str, extension: str, data: bytes) -> Ref:
    """Store bytes under PREFIX-<first 16 digits of their digest>.EXTENSION, a name for people that is unique to them."""
    digest = hashlib.sha256(data).hexdigest()
    return _put(store, Ref(f"{prefix}-{digest[:16]}.{extension}", digest, len(data)), data)


def _put(store: Store, ref: Ref, data: bytes) -> Ref:
    if len(data) > MAX_OBJECT:
        raise RondoError(f"{ref.key}: {len(data)} bytes are more than an object's {MAX_OBJECT}")
    held = store.stat(ref.key)
    # One of another size is what a loss of power left behind. An old one may be collected as garbage before a fact names it.
    if held is None or held[0] != ref.size or time.time() - held[1] > REFRESH_AFTER:
        store.put(ref.key, data)
    return ref
