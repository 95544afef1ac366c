"""The stores: a directory, and a bucket of a real S3 server."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

import rondo
from rondo import objects
from rondo.objects import Ref, Store, fetch, open_store, put_blob, put_named

from .conftest import KEYS


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "directory":
        return open_store(str(tmp_path / "objects"))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return open_store(request.getfixturevalue("bucket"))


def test_what_is_put_is_fetched(store: Store) -> None:
    for data in (b"", b"content", os.urandom(3 << 20)):
        ref = put_blob(store, data)
        assert ref.key == f"blobs/sha256/{ref.sha256[:2]}/{hashlib.sha256(data).hexdigest()}" and ref.size == len(data)
        assert fetch(store, ref) == data
        assert put_blob(store, data) == ref
    named = put_named(store, "runs/r/trajectories/x1-0", "arrow", b"content")
    assert named.key == f"runs/r/trajectories/x1-0-{named.sha256[:16]}.arrow"
    assert fetch(store, named) == b"content"


def test_other_bytes_are_refused(store: Store) -> None:
    ref = put_blob(store, os.urandom(100))
    store.put(ref.key, b"x" * 100)
    with pytest.raises(rondo.Damaged, match="sha256"):
        fetch(store, ref)
    store.put(ref.key, b"x" * 99)
    with pytest.raises(rondo.Damaged, match="99 bytes instead of 100"):
        fetch(store, ref)
    store.put(ref.key, b"x" * 101)
    with pytest.raises(rondo.Damaged, match="101 bytes, expected 100"):
        fetch(store, ref)
    with pytest.raises(rondo.NotFound, match="is not in the store"):
        fetch(store, Ref("runs/nothing", ref.sha256, 1))
    held = store.stat(ref.key)
    assert store.stat("runs/nothing") is None and held is not None and held[0] == 101


def test_what_is_old_is_made_young_before_a_fact_names_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(100)
    ref = put_blob(store, data)
    written: list[str] = []
    monkeypatch.setattr(store, "put", lambda key, _: written.append(key))
    put_blob(store, data)
    assert written == []
    monkeypatch.setattr(objects, "REFRESH_AFTER", -60.0)
    put_blob(store, data)
    assert written == [ref.key]


def test_what_a_crash_left_behind_is_written_again(store: Store) -> None:
    data = os.urandom(100)
    ref = put_blob(store, data)
    store.put(ref.key, b"")
    assert fetch(store, put_blob(store, data)) == data


@pytest.mark.parametrize(
    "wrong",
    [
        {"ref": "../etc/passwd"},
        {"ref": "/etc/passwd"},
        {"ref": "a//b"},
        {"ref": "a/.hidden"},
        {"ref": ""},
        {"ref": "a" * 201},
        {"ref": "/".join(["a" * 200] * 3)},
        {"sha256": "AB" * 32},
        {"sha256": "ab"},
        {"size": -1},
        {"size": (1 << 30) + 1},
        {"size": "many"},
        {"size": None},
    ],
)
def test_references_that_lead_astray(wrong: dict[str, object]) -> None:
    right = {"ref": "blobs/a", "sha256": "ab" * 32, "size": 1}
    assert Ref.parse(right).told() == right
    with pytest.raises(rondo.Damaged, match="reference"):
        Ref.parse({**right, **wrong})


def test_a_directory_is_never_seen_half_written(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/objects")
    data = [os.urandom(1 << 20), os.urandom(1 << 20)]
    store.put("a/b", data[0])
    done = threading.Event()
    seen = set()

    def look() -> None:
        while not done.is_set():
            seen.add(store.get("a/b", 1 << 20))

    watcher = threading.Thread(target=look)
    watcher.start()
    for i in range(20):
        store.put("a/b", data[i % 2])
    done.set()
    watcher.join()
    assert seen <= set(data)
    assert not list((tmp_path / "objects/.rondo/tmp").iterdir())


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("ftp://host/dir", "unknown store ftp"),
        ("s3://user:hidden@bucket/", "credentials"),
        ("s3://bucket/?endpoint=http://user:hidden@host", "is not of the form"),
        ("s3://bucket/?hidden=1", "unknown parameter"),
        ("s3://bucket", "no credentials for the bucket"),
    ],
)
def test_locations_that_are_none(location: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    if "endpoint" in location:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(rondo.RondoError, match=why) as caught:
        open_store(location)
    assert ":hidden" not in str(caught.value)
