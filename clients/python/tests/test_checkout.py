"""The copy of a workspace on the harness's machine: what it takes from an archive that nobody vouches for."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

import rondo
from rondo import checkout


def packed(*members: tuple[str, bytes, str]) -> bytes:
    """An archive of members: name, type, and content or where a link leads."""
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w:gz") as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                member.size = len(content.encode())
            else:
                member.linkname = content
            archive.addfile(member, io.BytesIO(content.encode()))
    return to.getvalue()


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_unpack(tmp_path: Path) -> None:
    whole = packed(
        (".", tarfile.DIRTYPE, ""),
        ("./a/b.txt", tarfile.REGTYPE, "b"),
        ("./link", tarfile.SYMTYPE, "a/b.txt"),
        ("./hard", tarfile.LNKTYPE, "./a/b.txt"),
        ("./absolute", tarfile.SYMTYPE, "/etc/passwd"),
        ("./up", tarfile.SYMTYPE, "../../x"),
        ("./pipe", tarfile.FIFOTYPE, ""),
        ("./.git/config", tarfile.REGTYPE, "[core]"),
        ("./a/.git/config", tarfile.REGTYPE, "[core]"),
        ("./.aider.conf.yml", tarfile.REGTYPE, "lint-cmd: evil"),
    )
    checkout.unpack(whole, tmp_path / "to", [".aider*"])
    assert everything(tmp_path / "to") == {"a", "a/b.txt", "link", "hard"}
    assert (tmp_path / "to/link").read_text() == (tmp_path / "to/hard").read_text() == "b"


@pytest.mark.parametrize(
    "members",
    [
        [("../x", tarfile.REGTYPE, "x")],
        [("a/../../x", tarfile.REGTYPE, "x")],
        [("up", tarfile.SYMTYPE, ".."), ("up/x", tarfile.REGTYPE, "x")],
        [("a", tarfile.SYMTYPE, "b/.."), ("b", tarfile.SYMTYPE, "a/.."), ("a/x", tarfile.REGTYPE, "x")],
        [("hard", tarfile.LNKTYPE, "../outside"), ("hard", tarfile.REGTYPE, "x")],
        [("hard", tarfile.LNKTYPE, "nothing")],
        [("turned", tarfile.SYMTYPE, "d/../outside"), ("d", tarfile.SYMTYPE, "."), ("hard", tarfile.LNKTYPE, "turned")],
        [("turned", tarfile.SYMTYPE, "d/../outside"), ("d", tarfile.SYMTYPE, "."), ("turned", tarfile.REGTYPE, "x")],
        [("/x/y", tarfile.REGTYPE, "x")],
    ],
)
def test_hostile(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    """Whatever an archive names, nothing outside of the folder changes."""
    (tmp_path / "outside").write_text("as it was")
    (tmp_path / "to").mkdir()
    with suppress(rondo.Failed):
        checkout.unpack(packed(*members), tmp_path / "to")
    assert {name for name in everything(tmp_path) if not name.startswith("to")} == {"outside"}
    assert (tmp_path / "outside").read_text() == "as it was"
    for path in (tmp_path / "to").rglob("*"):
        assert not path.is_file() or path.read_text() != "as it was", "what is outside can be read"


def test_a_link_that_another_one_turns(tmp_path: Path) -> None:
    """A link that led to a place in the folder when it was made, and leads out of it now."""
    (tmp_path / "outside").write_text("as it was")
    checkout.unpack(packed(("turned", tarfile.SYMTYPE, "d/../outside"), ("d", tarfile.SYMTYPE, ".")), tmp_path / "to")
    assert everything(tmp_path / "to") == {"d"}


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "MOST_BYTES", 10)
    monkeypatch.setattr(checkout, "MOST_ENTRIES", 3)
    with pytest.raises(rondo.Failed, match="too much for a copy here"):
        checkout.unpack(packed(("a", tarfile.REGTYPE, "x" * 11)), tmp_path)
    with pytest.raises(rondo.Failed, match="too much for a copy here"):
        checkout.unpack(packed(*((f"d{i}", tarfile.REGTYPE, "") for i in range(4))), tmp_path)
    assert not (tmp_path / "a").exists()


def test_broken_archives(tmp_path: Path) -> None:
    """Archives with changed and missing bytes are refused by an error of Rondo's, or unpacked inside of the folder."""
    whole = packed(("a/b.txt", tarfile.REGTYPE, "b" * 3000), ("link", tarfile.SYMTYPE, "a/b.txt"), ("hard", tarfile.LNKTYPE, "a/b.txt"))
    bare, chance = gzip.decompress(whole), random.Random(1)
    for i in range(400):
        broken = bytearray(bare)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        content = gzip.compress(bytes(broken[: chance.choice([len(broken), chance.randrange(len(broken))])]), 1)
        to = tmp_path / str(i) / "to"
        to.mkdir(parents=True)
        with suppress(rondo.Failed):
            checkout.unpack(content if i % 4 else content[: chance.randrange(len(content))], to)
        assert set((tmp_path / str(i)).iterdir()) == {to}
