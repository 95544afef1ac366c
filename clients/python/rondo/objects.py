"""The object store: immutable objects that the log names by key, size and SHA-256."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from .errors import Damaged, RondoError
from .source import Content, Source

__all__ = [
    "MAX_OBJECT",
    "MAX_STREAM",
    "Packer",
    "Ref",
    "Store",
    "fetch",
    "open_store",
    "put_all_named",
    "put_blob",
    "put_named",
    "put_weights",
    "save",
    "weights_key",
]

#: Largest object of a store that is read or written whole, and the largest of all, in bytes.
MAX_OBJECT, MAX_STREAM = 1 << 30, 1 << 40

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
        if not _KEY.fullmatch(ref.key) or not _DIGEST.fullmatch(ref.sha256) or not 0 <= ref.size <= MAX_STREAM:
            raise Damaged(f"reference {str(told)[:200]}: not a key, a SHA-256 and a size up to {MAX_STREAM}")
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

    def pieces(self, key: str, limit: int) -> Iterator[bytes]:
        """Read an object of at most limit bytes from front to end, a few megabytes at once. NotFound; Damaged where it is larger."""
        ...

    def upload(self, key: str, source: Source, absent: bool) -> None:
        """Write a source of any size, durably and whole, or not at all. absent: an object that is there meanwhile may stay."""
        ...

    def stat(self, key: str) -> tuple[int, float] | None:
        """Bytes of an object, and when it was written, in seconds since 1970; None where there is none."""
        ...


@runtime_checkable
class Packer(Protocol):
    """A store that can keep small objects together."""

    def put_packed(self, objects: Mapping[str, bytes]) -> None:
        """Write objects whose keys follow from their content, each durably and whole, or not at all."""
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
    data = store.get(ref.key, min(ref.size, MAX_OBJECT))
    if len(data) != ref.size:
        raise Damaged(f"{ref.key}: {len(data)} bytes instead of {ref.size}")
    digest = hashlib.sha256(data).hexdigest()
    if digest != ref.sha256:
        raise Damaged(f"{ref.key}: sha256 {digest} instead of {ref.sha256}")
    return data


def put_blob(store: Store, data: bytes) -> Ref:
    """Store bytes under their own digest."""
    digest = hashlib.sha256(data).hexdigest()
    ref = Ref(f"blobs/sha256/{digest[:2]}/{digest}", digest, len(data))
    if _is_wanted(store, ref):
        store.put(ref.key, data)
    return ref


def put_named(store: Store, prefix: str, extension: str, data: bytes) -> Ref:
    """Store bytes under PREFIX-<first 16 digits of their digest>.EXTENSION, a name for people that is unique to them."""
    return put_all_named(store, extension, [(prefix, data)])[0]


def put_all_named(store: Store, extension: str, objects: Sequence[tuple[str, bytes]]) -> list[Ref]:
    """put_named for several prefixes and their bytes. A store in a directory keeps small ones together, and syncs them once."""
    refs, wanted = [], {}
    for prefix, data in objects:
        digest = hashlib.sha256(data).hexdigest()
        ref = Ref(f"{prefix}-{digest[:16]}.{extension}", digest, len(data))
        refs.append(ref)
        if _is_wanted(store, ref):
            wanted[ref.key] = data
    if isinstance(store, Packer):
        store.put_packed(wanted)
    else:
        for key, data in wanted.items():
            store.put(key, data)
    return refs


def weights_key(policy: str, sha256: str) -> str:
    """Where a file of a policy's weights lies."""
    return f"weights/{policy}/files/{sha256}"


def put_weights(store: Store, policy: str, content: Content) -> Ref:
    """Store a file of a policy's weights under its own digest, in pieces. One that is there already is not sent again."""
    with Source(content) as source:
        ref = Ref(weights_key(policy, source.sha256), source.sha256, source.size)
        if ref.size > MAX_STREAM:
            raise RondoError(f"{ref.key}: {ref.size} bytes are more than an object's {MAX_STREAM}")
        held = store.stat(ref.key)
        if _is_young(held, ref):
            return ref
        store.upload(ref.key, source, held is None)
        return ref


def save(store: Store, ref: Ref, path: Path) -> None:
    """Write what a reference names into a file, in pieces, and sync it. Damaged where the bytes are others; there is no file then."""
    digest, size = hashlib.sha256(), 0
    try:
        with open(path, "wb", buffering=0) as file:
            for piece in store.pieces(ref.key, ref.size):
                digest.update(piece)
                size += len(piece)
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            if size != ref.size or digest.hexdigest() != ref.sha256:
                raise Damaged(f"{ref.key}: {size} bytes with sha256 {digest.hexdigest()} instead of {ref.size} with {ref.sha256}")
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _is_young(held: tuple[int, float] | None, ref: Ref) -> bool:
    """Whether an object needs no upload. One of another size is what a loss of power left behind; an old one may be collected as garbage
    before a fact names it."""
    return held is not None and held[0] == ref.size and time.time() - held[1] <= REFRESH_AFTER


def _is_wanted(store: Store, ref: Ref) -> bool:
    """Whether an object has to be written."""
    if ref.size > MAX_OBJECT:
        raise RondoError(f"{ref.key}: {ref.size} bytes are more than an object's {MAX_OBJECT}")
    return not _is_young(store.stat(ref.key), ref)
