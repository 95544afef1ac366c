"""The code that a user's query is about, packed as a sandbox unpacks it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from .errors import RondoError

__all__ = ["Repository", "pack"]

#: What the intake takes at most: bytes of all files, bytes of the archive, and entries.
MAX_BYTES, MAX_ARCHIVE, MAX_FILES = 128 << 20, 64 << 20, 100_000
#: Seconds that Git may take.
GIT_TIMEOUT = 600

_SSH = re.compile(r"(?:[^/@:]+@)?([^/@:]+):(?!//)(.+)")


@dataclass(frozen=True)
class Repository:
    """A packed repository: a tar compressed by zstd, and where it is from. A folder of this machine has no origin."""

    archive: bytes
    origin: str = ""
    commit: str = ""


def pack(repository: str | os.PathLike[str], commit: str | None = None) -> Repository:
    """Pack a folder without its .git, or a commit of a Git repository: a folder, or a URL of https or ssh.

    commit: a full hash, a branch or a tag; None packs a folder as it lies there, and what a URL's repository has checked out by default.
    Submodules and what Git LFS keeps elsewhere are left out. RondoError when it cannot be had, has links that leave it, or is too large.
    """
    folder = isinstance(repository, os.PathLike) or os.path.isdir(repository)
    if folder and commit is None:
        return Repository(_packed(_walked(Path(repository))))
    with tempfile.TemporaryDirectory(prefix="rondo-") as work:
        found = _fetched(
            Path(work), os.path.abspath(repository) if folder else str(repository), commit or "HEAD", "file" if folder else "https:ssh"
        )
        content = _git(Path(work), "archive", "--format=tar", found)
    return Repository(_packed(_members(content)), "" if folder else _origin(str(repository)), found)


def _fetched(work: Path, source: str, commit: str, protocols: str) -> str:
    """Fetch one commit into an empty repository; its hash. The source's own settings and attributes change nothing."""
    _git(work, "init", "--quiet", "--bare")
    (work / "info").mkdir(exist_ok=True)
    (work / "info" / "attributes").write_text("* -export-ignore -export-subst -text\n")
    _git(work, "fetch", "--quiet", "--depth=1", "--no-tags", "--", source, commit, protocols=protocols)
    return _git(work, "rev-parse", "--verify", "FETCH_HEAD^{commit}").decode().strip()


def _git(work: Path, *words: str, protocols: str = "") -> bytes:
    """What Git answers. It asks nobody for a password."""
    variables = {**os.environ, "GIT_DIR": str(work), "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": protocols, "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["git", *words], env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=GIT_TIMEOUT
        ).stdout
    except FileNotFoundError:
        raise RondoError("git is not installed: a commit needs it") from None
    except subprocess.TimeoutExpired:
        raise RondoError(f"git {words[0]} took more than {GIT_TIMEOUT} s") from None
    except subprocess.CalledProcessError as failed:
        told = failed.stderr.decode(errors="replace").strip().splitlines()
        raise RondoError(f"git {words[0]}: {_plain(told[-1]) if told else failed.returncode}") from None


def _plain(text: str) -> str:
    """A message of Git without credentials that a URL in it may have."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def _origin(url: str) -> str:
    """A URL without user, password, query and fragment."""
    if "://" not in url and (short := _SSH.fullmatch(url)):
        return f"ssh://{short[1]}/{short[2]}"
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _walked(folder: Path) -> Iterator[tuple[str, bytes | str | None, bool]]:
    """All below a folder but .git: path, contents, target of a link or None for a folder, and whether it is executable."""
    if not folder.is_dir():
        raise RondoError(f"{folder} is no folder")
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in folders + files:
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink():
                yield relative, os.readlink(path), False
            elif path.is_dir():
                yield relative, None, False
            elif not path.is_file():
                raise RondoError(f"{relative}: only files, folders and symbolic links can be packed")
            elif name != ".git":  # a file of that name leads to a repository elsewhere
                if path.stat().st_size > MAX_BYTES:
                    raise RondoError(f"{relative} has more than {MAX_BYTES >> 20} MiB")
                yield relative, path.read_bytes(), os.access(path, os.X_OK)


def _members(content: bytes) -> Iterator[tuple[str, bytes | str | None, bool]]:
    """The entries of Git's tar, as _walked gives those of a folder."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if member.isdir():
                yield member.name, None, False
            elif member.issym():
                yield member.name, member.linkname, False
            elif (file := archive.extractfile(member)) is not None:
                yield member.name, file.read(), bool(member.mode & 0o111)


def _packed(entries: Iterator[tuple[str, bytes | str | None, bool]]) -> bytes:
    """The archive of entries: sorted, without times and owners, so that the same files have the same digest."""
    found: Mapping[str, tuple[bytes | str | None, bool]] = _bounded(entries)
    sink = pa.BufferOutputStream()
    with (
        pa.CompressedOutputStream(sink, "zstd") as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(found, key=lambda path: path.split("/")):
            content, executable = found[name]
            member = tarfile.TarInfo(name)
            member.mode = 0o755 if executable or content is None else 0o644
            if content is None:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    packed: bytes = sink.getvalue().to_pybytes()
    if len(packed) > MAX_ARCHIVE:
        raise RondoError(f"the repository takes {len(packed)} bytes when it is packed, at most {MAX_ARCHIVE}")
    return packed


def _bounded(entries: Iterator[tuple[str, bytes | str | None, bool]]) -> dict[str, tuple[bytes | str | None, bool]]:
    found, size = {}, 0
    for name, content, executable in entries:
        if isinstance(content, str):
            inside = os.path.normpath(os.path.join(os.path.dirname(name), content))
            if os.path.isabs(content) or inside == ".." or inside.startswith("../"):
                raise RondoError(f"{name}: the link to {content} leaves the repository")
        elif content is not None:
            size += len(content)
        found[name.rstrip("/")] = content, executable
        if size > MAX_BYTES or len(found) > MAX_FILES:
            raise RondoError(
                f"the repository has more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files: pack the part that the query is about"
            )
    return found
