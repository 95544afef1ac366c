"""The workspace of a rollout in a folder of this machine, for harnesses that edit files where they run."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .errors import Failed

#: A workspace that is fetched has no more than that: bytes of its files, and entries.
MOST_BYTES, MOST_ENTRIES = 1 << 30, 100_000

#: How many names one command removes.
_NAMES = 500


@contextmanager
def checkout(sandbox: Any, leave: Sequence[str] = ()) -> Iterator[Path]:
    """A copy of the workspace, whose changes are written back at the end; see Sandbox.checkout."""
    with tempfile.TemporaryDirectory(prefix="rondo-") as name:
        folder = Path(name).resolve()
        fetch(sandbox, ".", folder, leave)
        _commit(folder)
        before = _state(folder, leave)
        yield folder
        _write_back(sandbox, folder, before, _state(folder, leave))


def _left(path: str, leave: Sequence[str]) -> bool:
    """A Git repository's settings name programs, so no .git is copied, wherever it is."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ".git" in parts or any(fnmatch(part, pattern) for part in parts[:1] for pattern in leave)


def fetch(sandbox: Any, of: str, folder: Path, leave: Sequence[str] = ()) -> None:
    """Copy a folder of the sandbox; see unpack for what is left out."""
    packed = f"/tmp/rondo-{secrets.token_hex(8)}.tar.gz"
    made = sandbox.exec(["tar", "-czf", packed, "--exclude=.git", "-C", of, "."], timeout=600)
    if made.exit_code:
        raise Failed(f"{of} of the sandbox cannot be packed: tar ends with exit code {made.exit_code}: {made.stderr[-500:]}")
    content = sandbox.read_bytes(packed)
    sandbox.exec(["rm", "-f", packed])
    unpack(content, folder, leave)


def unpack(content: bytes, folder: Path, leave: Sequence[str] = ()) -> None:
    """Unpack an archive that nobody vouches for. Failed for one that is too large, or that names files outside of the folder.

    Links that lead out of the folder, pipes and devices are left out.
    """
    folder = folder.resolve()
    size = entries = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r|gz") as archive:
            for member in archive:
                size, entries = size + member.size, entries + 1
                if size > MOST_BYTES or entries > MOST_ENTRIES:
                    raise Failed(f"the folder has more than {MOST_BYTES >> 20} MiB or {MOST_ENTRIES} entries, too much for a copy here")
                if not _left(member.name, leave) and folder / member.name != folder:
                    _place(archive, member, folder)
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError, OverflowError, RuntimeError, zlib.error) as error:
        raise Failed(f"the archive cannot be unpacked: {error}") from None
    finally:
        for link in [path for path in folder.rglob("*") if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(folder)]:
            link.unlink()  # another link has turned it since it was made


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Make what a member is. Not left to tarfile, which before Python 3.11.4 writes wherever a member says."""
    to = _inside(folder, folder / member.name)
    if member.isdir():
        to.mkdir(parents=True, exist_ok=True)
        return
    if not (member.isfile() or member.issym() or member.islnk()):
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    if to.is_symlink() or to.exists():
        to.unlink()
    if member.issym():
        aim = to.parent / member.linkname
        if not os.path.isabs(member.linkname) and aim.resolve().is_relative_to(folder):
            to.symlink_to(member.linkname)
        return
    if member.islnk():
        source = (folder / member.linkname).resolve(strict=True)
        if not source.is_relative_to(folder):
            raise ValueError(f"{member.linkname} is outside of the folder")
        shutil.copy2(source, to)
        return
    content = archive.extractfile(member)
    assert content
    with to.open("xb") as file:
        shutil.copyfileobj(content, file)
    to.chmod(member.mode & 0o755 | 0o600)


def _inside(folder: Path, path: Path) -> Path:
    """A path whose folder, links followed, is in the folder; ValueError for another one."""
    above = Path(os.path.realpath(path.parent))
    if path.name in ("", "..") or not above.is_relative_to(folder):
        raise ValueError(f"{path.relative_to(folder) if path.is_relative_to(folder) else path} is outside of the folder")
    return above / path.name


def _commit(folder: Path) -> None:
    """Make a Git repository of one commit, as harnesses want it. It has no settings but these."""
    git = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", "-C", str(folder)]
    for words in (
        ["init", "--quiet", "--template="],
        ["config", "user.name", "rondo"],
        ["config", "user.email", "rondo@localhost"],
        ["add", "--all"],
        ["commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", "workspace"],
    ):
        done = subprocess.run([*git, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"git {words[0]} in the copy of the workspace: {done.stderr.strip()[-500:]}")


def _state(folder: Path, leave: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The files and links of the folder, by their paths in it: a digest, and the permissions of a file or -1 for a link."""
    found = {}
    for above, folders, files in os.walk(folder):
        for name in [*files, *folders]:
            path = Path(above, name)
            inside = path.relative_to(folder).as_posix()
            if _left(inside, leave):
                continue
            if path.is_symlink():
                found[inside] = (os.readlink(path), -1)
            elif path.is_file():
                found[inside] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mode & 0o777)
    return found


def _write_back(sandbox: Any, folder: Path, before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]]) -> None:
    gone = sorted(before.keys() - after.keys())
    for i in range(0, len(gone), _NAMES):
        _must(sandbox, ["rm", "-f", "--", *gone[i : i + _NAMES]])
    for path, (digest, mode) in sorted(after.items()):
        was = before.get(path)
        if was == (digest, mode):
            continue
        if was is not None and (was[1] < 0) != (mode < 0):
            _must(sandbox, ["rm", "-f", "--", path])
        if mode < 0:
            _must(sandbox, ["sh", "-c", 'mkdir -p -- "$(dirname -- "$2")" && ln -sfn -- "$1" "$2"', "sh", digest, path])
        else:
            # The workspace's own permissions stay where the harness has not changed them.
            sandbox.write(path, (folder / path).read_bytes(), mode=0 if was is not None and was[1] == mode else mode)


def _must(sandbox: Any, command: list[str]) -> None:
    done = sandbox.exec(command)
    if done.exit_code:
        raise Failed(f"a change cannot be written back: {command[0]} ends with exit code {done.exit_code}: {done.stderr[-500:]}")
