"""A recorded rollout: its verdict, and what it changed."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rondo
from rondo.evidence import GradedTests, UnmetTest, recorded
from rondo.facts import Fact
from rondo.objects import Store, open_store, put_blob
from rondo.workspace import MAX_SHOWN, Entry, diff, entries

from .conftest import Plane, bring, missing


def archive(store: Store, *members: tuple[str, bytes | None], **links: str) -> dict[str, Any]:
    """A snapshot or a change: contents by their paths, None for what is deleted, and links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content or b""), 0o755 if name.endswith(".sh") else 0o644
            if content is None:
                member.pax_headers = {"RONDO.deleted": "1"}
            tar.addfile(member, io.BytesIO(content or b""))
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return put_blob(store, bytes(pa.Codec("zstd").compress(out.getvalue(), asbytes=True))).told()


def fact(kind: str, **data: Any) -> Fact:
    return Fact(1, f"rollout.{kind}", "g1-0", {}, data)


STARTED = fact("started", group="g1", task="t", policy_version=1)
FAILED = fact("failed", stage="tools", message="no sandbox", **{"class": "deadline"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "objects"))


def test_a_diff_is_one_that_git_applies(tmp_path: Path) -> None:
    """Every kind of change: Git makes of the one tree the other."""
    if shutil.which("git") is None:
        missing("git is not installed")
    long = "".join(f"line {n}\n" for n in range(100))
    before = {
        "edited": Entry("100644", long.encode()),
        "no end": Entry("100644", b"one"),
        "gone/deep": Entry("100644", "ä\n".encode()),
        "mode.sh": Entry("100644", b"#!/bin/sh\n"),
        "link": Entry("120000", b"edited"),
        "becomes": Entry("100644", b"a file\n"),
        "page": Entry("100644", b"form\x0cfeed\x1cand\xc2\x85more\n"),
        "stays": Entry("100644", b"as it is\n"),
    }
    after = {
        "edited": Entry("100644", long.replace("line 7\n", "line seven\n").replace("line 90\n", "").encode()),
        "no end": Entry("100644", b"one\ntwo"),
        "mode.sh": Entry("100755", b"#!/bin/sh\necho\n"),
        "link": Entry("120000", b"stays"),
        "becomes": Entry("120000", b"stays"),
        "page": Entry("100644", b"form\x0cfeed\x1cand\xc2\x85less\n"),
        "stays": Entry("100644", b"as it is\n"),
        'odd "\t\\name': Entry("100644", b"x\n"),
        "empty": Entry("100755", b""),
    }
    for name, entry in before.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if entry.mode == "120000":
            path.symlink_to(entry.content.decode())
        else:
            path.write_bytes(entry.content)
            path.chmod(int(entry.mode, 8) & 0o777)
    text = diff(before, after)
    applied = subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=text.encode(), capture_output=True)
    assert applied.returncode == 0, applied.stderr.decode() + text
    found = {}
    for path in (p for p in tmp_path.rglob("*") if p.is_symlink() or p.is_file()):
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        mode = "120000" if path.is_symlink() else "100755" if path.stat().st_mode & 0o100 else "100644"
        found[str(path.relative_to(tmp_path))] = Entry(mode, content)
    assert found == after
    assert "stays" not in {line.rpartition("b/")[2] for line in text.splitlines() if line.startswith("diff --git")}


def test_what_is_not_text_is_named() -> None:
    text = diff({"a": Entry("100644", b"\0")}, {"a": Entry("100644", b"\0\0"), "b": Entry("100644", b"x\n" * MAX_SHOWN)})
    assert "Binary files a/a and b/a differ: 1 and 2 bytes, not shown as text\n" in text
    assert f"Binary files /dev/null and b/b differ: 0 and {2 * MAX_SHOWN} bytes, not shown as text\n" in text


def test_entries(store: Store) -> None:
    """A change is laid over the snapshot: what took a folder's place has taken all below it."""
    snapshot = archive(store, ("a.sh", b"1"), ("d/b", b"2"), ("e/c", b"3"), l="a.sh")
    assert entries(store, snapshot)["l"] == Entry("120000", b"a.sh") and entries(store, snapshot)["a.sh"].mode == "100755"
    changed = entries(store, snapshot, archive(store, ("a.sh", None), ("l", b"a file"), ("e/x", b"4"), d="e"))
    assert changed == {
        "l": Entry("100644", b"a file"),
        "d": Entry("120000", b"e"),
        "e/c": Entry("100644", b"3"),
        "e/x": Entry("100644", b"4"),
    }


def test_a_verdict(store: Store) -> None:
    log = put_blob(store, b"\n" + b"x" * (80 << 10) + b"\nFAILED test_b: 1 != 2\n")
    scored = fact("scored", reward=0.5, components={"tests": 0.5}, exit_code=1, log=log.told(), duration_ms=2500.0, flags=["forfeit: oom"])
    told = recorded("r", "g1-0", [STARTED, scored], None, store)
    assert (told.outcome, told.group, told.task, told.failure) == ("scored", "g1", "t", "")
    assert told.verdict is not None and (told.verdict.reward, told.verdict.components) == (0.5, {"tests": 0.5})
    assert (told.verdict.exit_code, told.verdict.seconds, list(told.verdict.flags)) == (1, 2.5, ["forfeit: oom"])
    assert told.verdict.output.endswith("x\nFAILED test_b: 1 != 2") and len(told.verdict.output) == 64 << 10 and not told.verdict.unread
    with pytest.raises(rondo.NotFound, match="no workspace of rollout g1-0"):
        told.diff()


def test_the_tests_of_a_verdict(store: Store) -> None:
    """What is on the log of the tests, of each stage and of the whole; without a grading there are none."""
    unmet = [{"name": "test_b", "state": "failed", "message": "1 != 2"}, {"name": "test_c", "state": "missing", "regression": True}]
    stage = fact("step_scored", step=0, tests={"graded": 2, "held": 2, "bad_end": True})
    scored = fact("scored", reward=0, exit_code=1, duration_ms=1, tests={"graded": 9, "held": 7, "unmet": unmet})
    told = recorded("r", "g1-0", [STARTED, stage, scored], None, store)
    assert told.verdict is not None and list(told.verdict.tests) == [
        GradedTests(1, 2, 2, (), True),
        GradedTests(0, 9, 7, (UnmetTest("test_b", "failed", False, "1 != 2"), UnmetTest("test_c", "missing", True, "")), False),
    ]
    told = recorded("r", "g1-0", [STARTED, fact("scored", reward=0, exit_code=1, duration_ms=1)], None, store)
    with pytest.raises(rondo.NotFound, match="is not finished"):
        told.conversation()
    assert told.verdict is not None and told.verdict.tests == ()


def test_a_verdict_whose_output_is_lost_says_so(store: Store) -> None:
    for size, why in ((3, "is not in the store"), (17 << 20, "bytes")):
        gone = {"ref": "blobs/sha256/aa/" + "a" * 64, "sha256": "a" * 64, "size": size}
        told = recorded("r", "g1-0", [STARTED, fact("scored", reward=1, exit_code=0, log=gone, duration_ms=1)], None, store)
        assert told.verdict is not None and told.verdict.output == ""
        assert told.verdict.unread.startswith("what the verifier printed cannot be read: ") and why in told.verdict.unread


def test_what_a_rollout_has_left(store: Store) -> None:
    """The last change that is recorded counts, however far the rollout came; without one nothing changed."""
    snapshot = archive(store, ("a", b"1\n"))
    first, second = archive(store, ("a", b"2\n")), archive(store, ("a", b"3\n"))
    for facts, wanted in (
        ([], ""),
        ([fact("tools_completed", turn=0, workspace=first)], "+2\n"),
        ([fact("tools_completed", turn=0, workspace=first), fact("tools_completed", turn=1, workspace=second)], "+3\n"),
        ([fact("tools_completed", turn=0, workspace=first), fact("tools_completed", turn=1)], ""),
        ([fact("tools_completed", turn=0, workspace=first), fact("finished", workspace=second)], "+3\n"),
        ([fact("copied", turns=[], tools=[{"turn": 1, "workspace": second}, {"turn": 0, "workspace": first}])], "+3\n"),
        ([fact("tools_completed", turn=0, workspace=first), fact("step_scored", workspace=second)], "+3\n"),
        ([fact("tools_completed", turn=0, workspace=first), fact("step_scored", workspace={})], ""),
        ([fact("workspace_answered", workspace=first), fact("step_scored", workspace=second)], "+2\n"),
    ):
        told = recorded("r", "g1-0", [STARTED, *facts, FAILED], snapshot, store)
        assert (told.outcome, told.failure, told.verdict) == ("failed", "tools deadline no sandbox", None)
        text = told.diff()
        assert text.endswith(wanted) and bool(text) == bool(wanted), (facts, text)


def test_a_rollout_of_which_only_the_outcome_is_left(store: Store) -> None:
    with pytest.raises(rondo.NotFound, match="`rondo explain rollout r g1-0`"):
        recorded("r", "g1-0", [FAILED], None, store)


def test_a_rollout_of_a_live_run(plane: Plane) -> None:
    with rondo.Client(plane.dir, wait=60) as client:
        name = plane.open_run(client)
        bring(client, name, 1, 1)
    run = rondo.read(name, dir=plane.dir, frames="arrow")
    told = run.rollout("xg1-1")
    assert (told.run, told.id, told.group, told.task) == (name, "xg1-1", "xg1", "mend")
    assert told.verdict is not None and told.verdict.reward == 1 and told.verdict.output == ""
    with pytest.raises(rondo.NotFound, match="it ran elsewhere"):
        told.diff()
    with pytest.raises(rondo.NotFound, match=f"run {name} has no rollout g9-0"):
        run.rollout("g9-0")
    for pattern in ("*", ">", "g1.0"):
        with pytest.raises(ValueError, match="give an id such as"):
            run.rollout(pattern)
        with pytest.raises(ValueError, match="rondo run list"):
            rondo.read(pattern, dir=plane.dir, frames="arrow")
