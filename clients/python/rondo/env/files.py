"""The files of a finished workspace, as a reward function reads them: from the task's snapshot and the rollout's change, in memory."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pyarrow as pa

from ..errors import Damaged
from ..objects import Ref, Store, fetch

__all__ = ["workspace"]

#: Most bytes of all files together.
MAX_FILES = 256 << 20

_ZSTD = b"\x28\xb5\x2f\xfd"


def workspace(store: Store, *archives: Any) -> dict[str, bytes]:
    """The regular files of some archives by their paths; a later archive wins. Damaged where they are too large, or no archives."""
    files: dict[str, bytes] = {}
    for told in archives:
        if told and told.get("ref"):
            _lay(files, _opened(store, Ref.parse(told)))
    return files


def _opened(store: Store, ref: Ref) -> io.BytesIO:
    data = fetch(store, ref)
    if ref.key.startswith("blobs/parts/"):
        parts = json.loads(data)["parts"]
        data = b"".join(_plain(fetch(store, Ref.parse(part))) for part in parts)
    return io.BytesIO(_plain(data) if data.startswith(_ZSTD) else data)


def _plain(data: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            plain: bytes = stream.read(MAX_FILES + 1)
    except (OSError, pa.ArrowException) as error:
        raise Damaged(f"not a compressed archive: {error}") from None
    if len(plain) > MAX_FILES:
        raise Damaged(f"the workspace has more than {MAX_FILES} bytes")
    return plain


def _lay(files: dict[str, bytes], archive: io.BytesIO) -> None:
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for member in tar:
                name = member.name.rstrip("/")
                if not member.isdir() or "RONDO.deleted" in member.pax_headers:  # whatever had the name is replaced, with all below it
                    for old in [old for old in files if old == name or old.startswith(name + "/")]:
                        del files[old]
                if member.isfile() and "RONDO.deleted" not in member.pax_headers:
                    content = tar.extractfile(member)
                    files[name] = content.read() if content is not None else b""
    except (tarfile.TarError, ValueError) as error:
        raise Damaged(f"not an archive of a workspace: {error}") from None
    if sum(map(len, files.values())) > MAX_FILES:
        raise Damaged(f"the workspace has more than {MAX_FILES} bytes")
