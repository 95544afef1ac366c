"""Weights & Biases, online or offline."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .rows import Row, Run
from .tracker import Unavailable

__all__ = ["Wandb"]


class Wandb:
    """A run of a project. WANDB_MODE, WANDB_ENTITY, WANDB_DIR and WANDB_API_KEY count as they always do.

    Online the server says which step was the last. Offline the files of earlier processes say it, as only what is in them is ever uploaded.
    """

    def __init__(self, run: Run, project: str) -> None:
        try:
            import wandb
        except ImportError as error:
            raise Unavailable(f"wandb cannot be imported ({error}): pip install wandb") from None
        self._run: Any = wandb.init(project=project, id=run.id, name=run.name, group=run.policy, config=run.config, resume="allow")
        self._id = run.id
        self.place = self._run.url or str(Path(self._run.dir).parent)

    def last(self) -> int:
        """The last step of the server, or of the files of earlier processes."""
        if not self._run.offline:
            return max(0, int(self._run.starting_step) - 1)
        own = Path(self._run.dir).parent
        files = (file for file in own.parent.glob(f"offline-run-*/run-{self._id}.wandb") if file.parent != own)
        return max((step for file in files for step in steps(file.read_bytes())), default=0)

    def write(self, row: Row) -> None:
        """Hand a row to wandb's own process."""
        self._run.log(row.figures, step=row.step, commit=True)

    def close(self, complete: bool) -> None:
        """Wait until all is written or uploaded. A run that goes on is marked as one that did not end well, and resumes."""
        self._run.finish(exit_code=0 if complete else 1)


BLOCK, HEAD = 32 * 1024, 7
WHOLE, FIRST, LAST = 1, 2, 4


def records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file, a LevelDB log behind seven bytes. A record that a dying process left unfinished is the end."""
    at, parts = HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:  # too little for a head: the block is filled up
            at += BLOCK - at % BLOCK
            continue
        checksum, size, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + HEAD : at + HEAD + size]
        if len(piece) < size or zlib.crc32(piece, zlib.crc32(bytes([kind]))) != checksum:
            return
        at += HEAD + size
        parts = piece if kind in (WHOLE, FIRST) else parts + piece
        if kind in (WHOLE, LAST):
            yield parts


def steps(data: bytes) -> Iterator[int]:
    """The steps of the rows in a .wandb file."""
    from wandb.proto.wandb_internal_pb2 import Record

    for record in records(data):
        told = Record.FromString(record)
        if told.HasField("history"):
            yield told.history.step.num
