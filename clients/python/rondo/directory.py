"""The store in a directory: an object is a file at its key, or lies in a pack beside it."""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .errors import missing, too_large
from .packs import FOLDER, MAX_PACKED, Found, Packs, sync_folder
from .source import PIECE, Source

__all__ = ["Directory"]


class Directory:
    """A store in a directory of this machine, or of a file system that several machines share."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(path)
        self._alive = -1
        self._packs: dict[Path, Packs] = {}
        self._packs_lock = threading.Lock()

    def get(self, key: str, limit: int) -> bytes:
        """Read an object of at most limit bytes."""
        try:
            with open(self._root / key, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size > limit:
                    raise too_large(key, size, limit)
                return file.readall()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return self._get_packed(key, limit)

    def pieces(self, key: str, limit: int) -> Iterator[bytes]:
        """Read an object of at most limit bytes from front to end."""
        try:
            file = open(self._root / key, "rb", buffering=0)  # noqa: SIM115
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            yield self._get_packed(key, limit)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise too_large(key, size, limit)
            while piece := file.read(PIECE):
                yield piece

    def stat(self, key: str) -> tuple[int, float] | None:
        """Bytes of an object, and when it was written; None where there is none."""
        try:
            told = (self._root / key).stat()
            return told.st_size, told.st_mtime
        except (FileNotFoundError, NotADirectoryError):
            found = self._find(key)
        if found is None:
            return None
        with open(found.file, "rb") as pack:  # its writer may be dead, or still at it
            os.fsync(pack.fileno())
        return found.size, found.modified / 1e9

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self._write(key, [data])

    def put_packed(self, objects: Mapping[str, bytes]) -> None:
        """Write objects whose keys follow from their content.

        Small ones of a folder are synced together, with those that other threads put meanwhile.
        """
        self._enter()
        packs = (self._root / ".rondo" / "packs").exists()  # services say whether all of them know packs
        folders: dict[Path, dict[str, bytes]] = {}
        for key, data in objects.items():
            path = self._root / key
            if not packs or len(data) > MAX_PACKED or path.exists():  # a file at the key comes before what is in a pack
                self.put(key, data)
            else:
                folders.setdefault(path.parent, {})[path.name] = data
        for folder, small in folders.items():
            _make_folder(folder / FOLDER)
            self._packs_of(folder).put(small)

    def _packs_of(self, folder: Path) -> Packs:
        with self._packs_lock:
            return self._packs.setdefault(folder, Packs(folder))

    def _find(self, key: str) -> Found | None:
        path = self._root / key
        if path.parent not in self._packs and not (path.parent / FOLDER).is_dir():
            return None
        return self._packs_of(path.parent).find(path.name)

    def _get_packed(self, key: str, limit: int) -> bytes:
        found = self._find(key)
        if found is None:
            raise missing(key)
        if found.size > limit:
            raise too_large(key, found.size, limit)
        try:
            with open(found.file, "rb", buffering=0) as pack:
                return os.pread(pack.fileno(), found.size, found.data)
        except FileNotFoundError:  # deleted meanwhile
            raise missing(key) from None

    def upload(self, key: str, source: Source, absent: bool) -> None:
        """Write a source of any size."""
        self._write(key, source.pieces())

    def _write(self, key: str, pieces: Iterable[bytes]) -> None:
        """Write to a temporary file, sync, rename, and sync the folder: after a crash there is all of it or nothing."""
        self._enter()
        part, path = self._root / ".rondo" / "tmp" / secrets.token_hex(16), self._root / key
        _make_folder(path.parent)
        try:
            with open(part, "xb", buffering=0) as file:
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[file.write(view) :]
                os.fsync(file.fileno())
            os.rename(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)

    def _enter(self) -> None:
        """Hold the store's lock as every writer does: who finds nobody holding it removes temporary files."""
        if self._alive < 0:
            _make_folder(self._root / ".rondo" / "tmp")
            self._alive = os.open(self._root / ".rondo" / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._alive, fcntl.LOCK_SH)

    def __del__(self) -> None:
        for packs in self._packs.values():
            packs.close()
        if self._alive >= 0:
            os.close(self._alive)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each durable before the next: a synced file in a lost folder is lost."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)
