"""Repositories of users: what is packed, and what a plane takes of it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import rondo
from rondo import repository
from rondo.repository import pack

from .conftest import Plane, missing


def files(packed: repository.Repository) -> dict[str, str]:
    """What an archive holds: contents, targets of links, and x for what may be executed."""
    content = pa.CompressedInputStream(pa.BufferReader(packed.archive), "zstd").read()
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            assert (member.mtime, member.uid, member.uname) == (0, 0, "")
            file = None if member.isdir() or member.issym() else archive.extractfile(member)
            found[member.name] = ("x " if member.mode & 0o100 and file else "") + (file.read().decode() if file else member.linkname or "/")
    return found


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A repository with two commits and a change that is in none."""
    folder = tmp_path / "code"
    (folder / "src").mkdir(parents=True)
    (folder / "src/a.sh").write_text("#!/bin/sh\n")
    (folder / "src/a.sh").chmod(0o755)
    (folder / "hidden.txt").write_text("$Format:%H$\r\n")
    (folder / ".gitattributes").write_text("hidden.txt export-ignore export-subst text\n")
    (folder / "link").symlink_to("src/a.sh")

    def git(*words: str) -> None:
        try:
            subprocess.run(
                ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.autocrlf=false", *words],
                cwd=folder,
                check=True,
                capture_output=True,
            )
        except FileNotFoundError:
            missing("git is not installed")

    git("init", "--quiet", "--initial-branch=main")
    git("add", ".")
    git("commit", "--quiet", "--message=one")
    git("tag", "v1")
    (folder / "b.txt").write_text("two\n")
    git("add", ".")
    git("commit", "--quiet", "--message=two")
    (folder / "b.txt").write_text("three\n")
    return folder


def test_folder_and_commit(code: Path) -> None:
    as_it_lies, old = pack(code), pack(code, "v1")
    assert files(as_it_lies)["b.txt"] == "three\n"
    assert "b.txt" not in files(old)
    assert {k: v for k, v in files(old).items() if k in ("src", "src/a.sh", "link")} == {
        "src": "/",
        "src/a.sh": "x #!/bin/sh\n",
        "link": "src/a.sh",
    }
    assert files(pack(code, "main"))["b.txt"] == "two\n"
    assert pack(code, old.commit) == old == pack(str(code), "v1")
    assert len(old.commit) == 40
    assert (as_it_lies.commit, old.origin) == ("", "")
    assert not any(name.startswith(".git/") for name in files(as_it_lies))


def test_attributes_of_the_repository_change_nothing(code: Path) -> None:
    assert files(pack(code, "v1"))["hidden.txt"] in ("$Format:%H$\r\n", "$Format:%H$\n")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda f: (f / "out").symlink_to("../x"), "leaves the repository"),
        (lambda f: (f / "root").symlink_to("/etc"), "leaves the repository"),
        (lambda f: os.mkfifo(f / "pipe"), "only files, folders"),
    ],
)
def test_what_is_refused(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path)
    with pytest.raises(rondo.RondoError, match=why):
        pack(tmp_path)


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(os.urandom(1000))
    monkeypatch.setattr(repository, "MAX_ARCHIVE", 500)
    with pytest.raises(rondo.RondoError, match="when it is packed"):
        pack(tmp_path)
    monkeypatch.setattr(repository, "MAX_BYTES", 999)
    with pytest.raises(rondo.RondoError, match="has more than"):
        pack(tmp_path)


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% planted", "file:///etc", "http://127.0.0.1:1/r", "--upload-pack=touch planted", "git://127.0.0.1:1/r"]
)
def test_other_protocols_are_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rondo.RondoError):
        pack(url)
    assert not list(tmp_path.iterdir())


def test_urls_reach_no_files_of_this_machine(code: Path) -> None:
    with pytest.raises(rondo.RondoError, match="not allowed"):
        pack(code.as_uri(), "v1")


def test_passwords_stay_here() -> None:
    with pytest.raises(rondo.RondoError) as failed:
        pack("https://me:secret@127.0.0.1:1/r.git")
    assert "secret" not in str(failed.value)
    assert "secret" not in str(failed.value.__cause__ or "")
    for url, origin in [
        ("https://me:secret@example.org/r.git?token=secret#secret", "https://example.org/r.git"),
        ("git@example.org:team/r.git", "ssh://example.org/team/r.git"),
        ("ssh://git@example.org:22/r", "ssh://example.org:22/r"),
    ]:
        assert repository._origin(url) == origin


def test_query_brings_its_repository(client: rondo.Client, plane: Plane, code: Path, tmp_path: Path) -> None:
    task = tmp_path / "pack/mend"
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "environment/a.txt").write_text("one\n")
    (task / "tests/test.sh").write_text("#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")
    (task / "instruction.md").write_text("Mend it.\n")
    (task / "task.toml").write_text('version = "1.0"\n')
    for name, features in [("own", "user_traffic, user_repositories"), ("plain", "user_traffic")]:
        (tmp_path / "run.yaml").write_text(
            "policy: own-code\nendpoint: http://127.0.0.1:1/v1\nexternal: true\ngroup_size: 1\nmin_verifier: in-process-without-canaries\n"
            f"features: [{features}]\ntraffic: {{rate: 1, consent: optional}}\n"
        )
        plane.command("run", "open", name, "--force", "--file", str(tmp_path / "run.yaml"), "--tasks", str(tmp_path / "pack"))
    with pytest.raises(rondo.NotTaken, match="user_repositories"):
        client.submit_query("plain", "Mend it.", task="mend", consent=True, repository=code)
    with pytest.raises(rondo.NotTaken, match="not agreed"):
        client.submit_query("own", "Mend it.", task="mend", repository=code)
    client.submit_query("own", "Mend it.", task="mend", consent=True, name="one", repository=code, commit="v1")
    client.submit_query("own", "Mend it.", task="mend", name="theirs")
    opened, deadline = dict[str, str](), time.monotonic() + 120
    while len(opened) < 2:
        assert time.monotonic() < deadline, "the queries were not taken up"
        facts = [json.loads(line) for line in plane.command("events", "tail", "own", "--type", "group.opened", "--json").splitlines()]
        opened = {fact["data"]["task"]: fact["entity"] for fact in facts}
        time.sleep(0.2)
    (code / "final.txt").write_text("mine\n")
    for query, why in [("qtheirs", "not agreed"), ("", "answers no query")]:
        with pytest.raises(rondo.NotTaken, match=why):
            client.record_feedback("own", opened.get(query, "g999999") + "-0", "follow_up", repository=code)

    async def first_call() -> None:
        own = rondo.AsyncClient(plane.dir, wait=60)
        try:
            await own.record_feedback("own", opened["qtheirs"] + "-0", "follow_up", repository=code)
        finally:
            await own.close()

    with pytest.raises(rondo.NotTaken, match="not agreed"):
        asyncio.run(first_call())
    client.record_feedback("own", opened["qone"] + "-0", "follow_up", text="I did it.", repository=code)
    told = plane.command("events", "tail", "own", "--json")
    assert hashlib.sha256(pack(code).archive).hexdigest() in told
    packed = pack(code, "v1")
    assert hashlib.sha256(packed.archive).hexdigest() in told
    assert packed.commit in told
