"""What is uploaded: bytes, or a file that is read in pieces."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from .errors import Damaged

__all__ = ["PIECE", "Content", "Source"]

#: Bytes of a file that are in memory at once while it is read from front to end.
PIECE = 4 << 20

#: What may be uploaded.
Content = bytes | Path


class Source:
    """Bytes at positions; the digest is computed when it is opened. To be closed. Several threads may read."""

    def __init__(self, content: Content) -> None:
        self._data = content if isinstance(content, bytes) else b""
        self._file = -1 if isinstance(content, bytes) else os.open(content, os.O_RDONLY | os.O_CLOEXEC)
        self._name = "data" if isinstance(content, bytes) else str(content)
        self.size = len(self._data) if self._file < 0 else os.fstat(self._file).st_size
        digest = hashlib.sha256()
        for piece in self._pieces():
            digest.update(piece)
        self.sha256 = digest.hexdigest()

    def read(self, offset: int, length: int) -> bytes:
        """A range. Damaged where the file is shorter than it was."""
        if self._file < 0:
            return self._data[offset : offset + length]
        parts = []
        while length > 0:
            part = os.pread(self._file, length, offset)
            if not part:
                raise self.changed()
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self) -> Iterator[bytes]:
        """All of it from front to end. Damaged at the end where it is not what the digest was computed of."""
        digest = hashlib.sha256()
        for piece in self._pieces():
            digest.update(piece)
            yield piece
        if digest.hexdigest() != self.sha256:
            raise self.changed()

    def _pieces(self) -> Iterator[bytes]:
        return (self.read(at, min(PIECE, self.size - at)) for at in range(0, self.size, PIECE))

    def changed(self) -> Damaged:
        """The error for a file that somebody writes to."""
        return Damaged(f"{self._name} has changed while it was read")

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
