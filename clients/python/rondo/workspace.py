"""The files of a workspace, from the task's snapshot and a rollout's change, in memory; and what differs between two of them."""

from __future__ import annotations

import difflib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .errors import Damaged
from .objects import Ref, Store, fetch

__all__ = ["Entry", "diff", "entries", "workspace"]

#: Most bytes of all files together.
MAX_FILES = 256 << 20

#: Bytes of a file, on either side, and of all files that a diff shows as text. Of others it says that they differ.
MAX_SHOWN, MAX_DIFF = 256 << 10, 8 << 20

_ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Entry:
    """A file, or a link, whose content is its target. The mode is Git's: 100644, 100755 or 120000."""

    mode: str
    content: bytes


def workspace(store: Store, *archives: Any) -> dict[str, bytes]:
    """The regular files of some archives by their paths; a later archive wins. Damaged where they are too large, or no archives."""
    return {name: entry.content for name, entry in entries(store, *archives).items() if entry.mode != "120000"}


def entries(store: Store, *archives: Any) -> dict[str, Entry]:
    """Like workspace, with links and modes."""
    found: dict[str, Entry] = {}
    for told in archives:
        if told and told.get("ref"):
            _lay(found, _opened(store, Ref.parse(told)))
    return found


def _opened(store: Store, ref: Ref) -> io.BytesIO:
    data = fetch(store, ref)
    if ref.key.startswith("blobs/parts/"):
        plain = io.BytesIO()
        for part in json.loads(data)["parts"]:
            plain.write(_plain(fetch(store, Ref.parse(part))))
            _bounded(plain.tell())
        plain.seek(0)
        return plain
    return io.BytesIO(_plain(data) if data.startswith(_ZSTD) else data)


def _plain(data: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            plain: bytes = stream.read(MAX_FILES + 1)
    except (OSError, pa.ArrowException) as error:
        raise Damaged(f"not a compressed archive: {error}") from None
    _bounded(len(plain))
    return plain


def _bounded(size: int) -> None:
    if size > MAX_FILES:
        raise Damaged(f"the workspace has more than {MAX_FILES} bytes")


def _lay(files: dict[str, Entry], archive: io.BytesIO) -> None:
    folders = {folder for name in files for folder in _above(name)}
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for member in tar:
                name, deleted = member.name.rstrip("/"), "RONDO.deleted" in member.pax_headers
                files.pop(name, None)
                if name in folders and (deleted or not member.isdir()):  # all below is gone, too
                    for old in [old for old in files if old.startswith(name + "/")]:
                        del files[old]
                if deleted or member.isdir():
                    continue
                if member.issym():
                    files[name] = Entry("120000", member.linkname.encode(errors="surrogateescape"))
                elif member.isfile():
                    content = tar.extractfile(member)
                    files[name] = Entry("100755" if member.mode & 0o111 else "100644", content.read() if content is not None else b"")
                folders.update(_above(name))
    except (tarfile.TarError, ValueError) as error:
        raise Damaged(f"not an archive of a workspace: {error}") from None
    _bounded(sum(len(entry.content) for entry in files.values()))


def _above(name: str) -> Iterator[str]:
    """The folders above a path."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def diff(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> str:
    """What differs, in the form of `git diff`, with a line of words for each file that is not shown as text."""
    lines, shown = list[str](), 0
    for name in sorted(set(before) | set(after)):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        shown += sum(len(entry.content) for entry in (was, now) if entry)
        # A file that became a link, or a link that became a file, is one that went and another that came.
        if was and now and "120000" in (was.mode, now.mode) and was.mode != now.mode:
            lines += [*_compared(name, was, None, shown), *_compared(name, None, now, shown)]
        else:
            lines += _compared(name, was, now, shown)
    return "".join(lines)


def _compared(name: str, was: Entry | None, now: Entry | None, shown: int) -> Iterator[str]:
    left, right = _quoted("a/" + name), _quoted("b/" + name)
    yield f"diff --git {left} {right}\n"
    if was is None and now is not None:
        left = "/dev/null"
        yield f"new file mode {now.mode}\n"
    elif now is None and was is not None:
        right = "/dev/null"
        yield f"deleted file mode {was.mode}\n"
    elif was is not None and now is not None and was.mode != now.mode:
        yield f"old mode {was.mode}\nnew mode {now.mode}\n"
    old, new = was.content if was else b"", now.content if now else b""
    if old == new:
        return
    try:
        if b"\0" in old + new or max(len(old), len(new)) > MAX_SHOWN or shown > MAX_DIFF:
            raise ValueError
        texts = _lines(old.decode()), _lines(new.decode())
    except ValueError:
        yield f"Binary files {left} and {right} differ: {len(old)} and {len(new)} bytes, not shown as text\n"
        return
    for line in difflib.unified_diff(*texts, left, right):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """The lines of a text, with their ends. str.splitlines knows ends that no diff does."""
    return list(io.StringIO(text, newline="\n"))


def _quoted(name: str) -> str:
    """A name as Git writes it: in quotes where it has other than plain characters."""
    if name.isprintable() and not set(name) & set('"\\'):
        return name
    written = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(written.get(c, c if c.isprintable() else _octal(c)) for c in name) + '"'


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
