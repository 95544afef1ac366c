"""Packs: files of a store in a directory, each with many small objects. Rondo's package storage/dir describes and shares them."""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

__all__ = ["FOLDER", "MAX_PACKED", "Found", "Packs", "sync_folder"]

#: The folder of packs beside the objects.
FOLDER = ".packs"
#: Largest object of a pack, and the size from which on a pack gets no more, in bytes.
MAX_PACKED, MAX_PACK = 64 << 10, 64 << 20

#: Magic, CRC-32 of what follows in the head and of the name, CRC-32 of the data, bytes of name and data, nanoseconds since 1970.
_HEAD = struct.Struct("<IIIIQq")
_MAGIC = 0x316B6350
_SUMMED = 8  # where that begins which the first sum is of
_MAX_NAME = 256
#: What is noted of a deletion: the record's place, and the CRC-32 of that.
_GONE = struct.Struct("<QIxxxx")
#: How long two changes of a folder may have the same time, in nanoseconds.
_SETTLED = 2_000_000_000


@dataclass(frozen=True)
class Found:
    """Where an object lies."""

    file: Path
    at: int
    data: int
    size: int
    #: Nanoseconds since 1970.
    modified: int


@dataclass
class _Pack:
    file: Path
    scanned: int = 0
    gone: set[int] = field(default_factory=set)
    noted: int = 0


@dataclass
class _Waiting:
    name: str
    data: bytes
    done: bool = False
    error: BaseException | None = None


class Packs:
    """What the packs of a folder hold. Objects that threads put at the same time are synced together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._lock, self._changed = threading.Lock(), -1
        self._packs: dict[str, _Pack] = {}
        self._objects: dict[str, list[Found]] = {}
        self._queue: list[_Waiting] = []
        self._queue_lock, self._turn = threading.Lock(), threading.Lock()
        self._own, self._file, self._size = -1, self._folder, 0

    def find(self, name: str) -> Found | None:
        """The newest object of a name."""
        with self._lock:
            if not self._refresh():
                return None
            there = [f for f in self._objects.get(name, ()) if f.at not in self._packs[f.file.name].gone]
            return max(there, key=lambda f: f.modified, default=None)

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Write objects, by their names, and return when they are on the disk."""
        waiting = [_Waiting(name, data) for name, data in objects.items()]
        with self._queue_lock:
            self._queue += waiting
        with self._turn:
            if not all(w.done for w in waiting):
                with self._queue_lock:
                    group, self._queue = self._queue, []
                self._write(group)
        for w in waiting:
            if w.error:
                raise w.error

    def close(self) -> None:
        """Let the pack be that this process adds to. What comes later begins a new one."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1

    def _write(self, group: list[_Waiting]) -> None:
        try:
            self._prepare()
            data = b"".join(_record(w.name, w.data) for w in group)
            try:
                _write_all(self._own, data, self._size)
                os.fsync(self._own)
            except BaseException:
                os.ftruncate(self._own, self._size)
                self.close()  # nobody knows what of it is there, so nothing comes behind it
                raise
            self._size += len(data)
        except BaseException as error:
            for w in group:
                w.error = error
        finally:
            for w in group:
                w.done = True

    def _prepare(self) -> None:
        """Make a pack, unless there is one that still has its name."""
        if self._own >= 0:
            if self._size < MAX_PACK and _is_there(self._file, self._own):
                return
            self.close()
        for _ in range(3):
            self._file, self._size = self._folder / f"{secrets.token_hex(13)}.pack", 0
            self._own = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._own, fcntl.LOCK_EX)
            if _is_there(self._file, self._own):  # before it was locked it was nobody's, and could be removed
                sync_folder(self._folder)
                return
            self.close()
        raise OSError(f"{self._folder}: packs are removed as soon as they are made")

    def _refresh(self) -> bool:
        """Read what was added or deleted; False where there are no packs."""
        try:
            changed = self._folder.stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return False
        if changed != self._changed or time.time_ns() - changed < _SETTLED:
            names = {name for name in os.listdir(self._folder) if name.endswith(".pack")}
            for name in self._packs.keys() - names:
                del self._packs[name]
                for held in self._objects.values():
                    held[:] = [f for f in held if f.file.name != name]
            for name in names - self._packs.keys():
                self._packs[name] = _Pack(self._folder / name)
            self._changed = changed
        for pack in self._packs.values():
            try:
                self._scan(pack)
                _read_gone(pack)
            except FileNotFoundError:
                continue  # removed meanwhile
        return True

    def _scan(self, pack: _Pack) -> None:
        """Read the records that are new and whole."""
        if pack.file.stat().st_size <= pack.scanned:
            return
        with open(pack.file, "rb", buffering=0) as file:
            while record := _read(file.fileno(), pack.scanned):
                name, sum_, size, modified = record
                found = Found(pack.file, pack.scanned, pack.scanned + _HEAD.size + len(name), size, modified)
                data = os.pread(file.fileno(), size, found.data)
                if not name or len(data) != size or crc32(data) != sum_:
                    return
                self._objects.setdefault(name.decode(), []).append(found)
                pack.scanned = (found.data + size + 7) & ~7


def _record(name: str, data: bytes) -> bytes:
    told = name.encode()
    head = _HEAD.pack(_MAGIC, 0, crc32(data), len(told), len(data), time.time_ns())
    head = head[:4] + struct.pack("<I", crc32(told, crc32(head[_SUMMED:]))) + head[_SUMMED:]
    return head + told + data + bytes(-(len(head) + len(told) + len(data)) % 8)


def _read(file: int, at: int) -> tuple[bytes, int, int, int] | None:
    """Name, sum, size and time of the record at a place."""
    head = os.pread(file, _HEAD.size + _MAX_NAME, at)
    if len(head) < _HEAD.size:
        return None
    magic, head_sum, data_sum, length, size, modified = _HEAD.unpack_from(head)
    end = _HEAD.size + length
    if magic != _MAGIC or size > MAX_PACKED or len(head) < end or crc32(head[_SUMMED:end]) != head_sum:
        return None
    return head[_HEAD.size : end], data_sum, size, modified


def _read_gone(pack: _Pack) -> None:
    try:
        with open(pack.file.with_suffix(".gone"), "rb") as file:
            file.seek(pack.noted)
            notes = file.read()
    except FileNotFoundError:
        return
    for at, sum_ in _GONE.iter_unpack(notes[: len(notes) // _GONE.size * _GONE.size]):
        if crc32(struct.pack("<Q", at)) == sum_:
            pack.gone.add(at)
        pack.noted += _GONE.size


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
