"""The stores: a directory, and a bucket of a real S3 server."""

from __future__ import annotations

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rondo
from rondo import objects
from rondo.multipart import Parts
from rondo.objects import Ref, Store, fetch, open_store, put_blob, put_named, put_weights, save
from rondo.source import Source

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
        {"size": (1 << 40) + 1},
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


def large(path: Path, size: int = 40 << 20) -> Path:
    """A file of which no two parts are the same."""
    path.write_bytes(b"".join(i.to_bytes(8, "little") * 128 for i in range(size >> 10)) + b"the end")
    return path


def test_files_of_weights_go_up_and_down_in_pieces(store: Store, tmp_path: Path) -> None:
    path = large(tmp_path / "model.safetensors")
    tracemalloc.start()
    try:
        ref = put_weights(store, "small", path)
        save(store, ref, tmp_path / "copy")
        assert tracemalloc.get_traced_memory()[1] < 5 * (16 << 20)  # its parts, and one that is read
    finally:
        tracemalloc.stop()
    assert ref.key == f"weights/small/files/{ref.sha256}" and ref.size == path.stat().st_size
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    for content in (b"", b"{}"):
        small = put_weights(store, "small", content)
        assert fetch(store, small) == content


def test_what_is_there_is_not_sent_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path / "model.safetensors")
    ref = put_weights(store, "small", path)
    sent: list[bool] = []
    monkeypatch.setattr(store, "upload", lambda *_: sent.append(True))
    assert put_weights(store, "small", path) == ref and not sent
    monkeypatch.setattr(objects, "REFRESH_AFTER", -60.0)
    assert put_weights(store, "small", path) == ref and sent


def test_a_file_that_changes_is_not_uploaded(store: Store, tmp_path: Path) -> None:
    path = large(tmp_path / "model.safetensors")
    for size in (path.stat().st_size, 100):
        with Source(path) as source:
            with path.open("r+b") as file:
                file.write(b"x")
                file.truncate(size)
            with pytest.raises(rondo.Damaged, match="has changed"):
                store.upload("weights/small/files/changed", source, True)
        assert store.stat("weights/small/files/changed") is None
        large(path)


def test_what_is_saved_is_verified(store: Store, tmp_path: Path) -> None:
    ref = put_weights(store, "small", b"content")
    for wrong in (b"CONTENT", b"cont"):
        store.put(ref.key, wrong)
        with pytest.raises(rondo.Damaged):
            save(store, ref, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
    with pytest.raises(rondo.NotFound):
        save(store, Ref("weights/small/files/none", ref.sha256, 1), tmp_path / "copy")


def unreliable(monkeypatch: pytest.MonkeyPatch, lost: Callable[[str, dict[str, str]], bool], arrives: bool) -> list[str]:
    """Let connections break before an answer is there, whether or not the request has arrived: once for each that lost chooses."""
    broken: list[str] = []
    once = Parts._once

    def request(parts: Parts, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]) -> Any:
        name = f"{method} {sorted(query.items())}"
        if lost(method, query) and name not in broken:
            broken.append(name)
            if arrives:
                once(parts, method, path, query, body, headers)
            raise ConnectionResetError("the cable")
        return once(parts, method, path, query, body, headers)

    monkeypatch.setattr(Parts, "_once", request)
    monkeypatch.setattr("rondo.multipart.time.sleep", lambda _: None)
    return broken


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("absent", [True, False])
def test_broken_connections(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrives: bool, absent: bool) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    store = open_store(bucket)
    key = f"weights/small/files/{arrives}-{absent}"
    broken = unreliable(monkeypatch, lambda method, query: "uploadId" in query and method != "DELETE", arrives)
    with Source(large(tmp_path / "model.safetensors")) as source:
        store.upload(key, source, absent)
        assert len(broken) == 4  # three parts, and the end
        assert fetch(store, Ref(key, source.sha256, source.size))


def test_who_is_second_leaves_the_first_ones_object(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    store, path = open_store(bucket), large(tmp_path / "model.safetensors")
    with Source(path) as source:
        store.upload("weights/small/files/twice", source, True)
        first = store.stat("weights/small/files/twice")
        store.upload("weights/small/files/twice", source, True)
        assert store.stat("weights/small/files/twice") == first


def test_an_upload_that_fails_leaves_nothing(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    store = open_store(bucket)
    monkeypatch.setattr("rondo.multipart.time.sleep", lambda _: None)
    once = Parts._once
    asked: list[str] = []

    def request(parts: Parts, method: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]) -> Any:
        asked.append(method)
        if query.get("partNumber") == "2":
            raise TimeoutError("silence")
        return once(parts, method, path, query, body, headers)

    monkeypatch.setattr(Parts, "_once", request)
    with Source(large(tmp_path / "model.safetensors")) as source, pytest.raises(rondo.RondoError, match="TimeoutError silence, 6 times"):
        store.upload("weights/small/files/never", source, True)
    assert asked[-1] == "DELETE" and store.stat("weights/small/files/never") is None


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
