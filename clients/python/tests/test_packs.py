"""Packs of small objects, which this client and Rondo's services share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rondo
from rondo.directory import Directory
from rondo.packs import MAX_PACKED

from .conftest import ending

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def allowed(tmp_path: Path) -> Path:
    """What a service leaves that opens the store when no other process has."""
    path = tmp_path / ".rondo" / "packs"
    path.parent.mkdir()
    path.touch()
    return path


def content(key: str) -> bytes:
    return key.encode() * (1 + len(key) * int(key[-2:]))


KEYS = [f"runs/r/trajectories/x{i:02}" for i in range(64)]


def pack(store: Directory, keys: list[str]) -> None:
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda key: store.put_packed({key: content(key)}), keys))


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and ".rondo" not in path.parts)


def test_packed_objects_are_objects(tmp_path: Path) -> None:
    one, other = Directory(tmp_path), Directory(tmp_path)
    pack(one, KEYS[:32])
    pack(other, KEYS[32:])
    assert len(files(tmp_path)) == 2
    for store in (one, other, Directory(tmp_path)):
        for key in KEYS:
            assert store.get(key, 1 << 20) == content(key)
            assert b"".join(store.pieces(key, 1 << 20)) == content(key)
            held = store.stat(key)
            assert held is not None and held[0] == len(content(key))
    assert one.stat("runs/r/trajectories/absent") is None and one.stat("runs/absent/x") is None
    with pytest.raises(rondo.NotFound):
        one.get("runs/r/trajectories/absent", 1)
    with pytest.raises(rondo.Damaged):
        one.get(KEYS[1], 3)


def test_large_objects_and_those_that_are_files_stay_files(tmp_path: Path) -> None:
    store = Directory(tmp_path)
    store.put_packed({"runs/r/large": bytes(MAX_PACKED + 1)})
    store.put("runs/r/file", b"file")
    store.put_packed({"runs/r/file": b"mended"})
    assert [path.name for path in files(tmp_path)] == ["file", "large"]
    assert store.get("runs/r/file", 10) == b"mended"


def test_no_packs_beside_services_that_know_none(tmp_path: Path, allowed: Path) -> None:
    allowed.unlink()
    pack(Directory(tmp_path), KEYS[:3])
    assert [path.name for path in files(tmp_path)] == [key.rpartition("/")[2] for key in KEYS[:3]]


def test_a_torn_pack_keeps_what_is_before_the_tear(tmp_path: Path) -> None:
    for key in KEYS[:3]:
        Directory(tmp_path).put_packed({key: content(key)})
    writer = Directory(tmp_path)
    writer.put_packed({KEYS[3]: content(KEYS[3])})
    writer.put_packed({KEYS[4]: content(KEYS[4])})
    (path,) = (p for p in files(tmp_path) if content(KEYS[4]) in p.read_bytes())
    data = bytearray(path.read_bytes())
    for torn in (data[:-20], data[:-20] + bytes(20)):  # a power cut may keep the length without the content
        path.write_bytes(torn)
        store = Directory(tmp_path)
        assert store.stat(KEYS[4]) is None
        assert all(store.get(key, 1 << 20) == content(key) for key in KEYS[:4])


def test_one_sync_writes_all_objects_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    store, sync = Directory(tmp_path), os.fsync
    store.put_packed({KEYS[0]: content(KEYS[0])})  # makes the pack

    def counted(file: int) -> None:
        syncs.append(file)
        sync(file)

    monkeypatch.setattr(os, "fsync", counted)
    store.put_packed({key: content(key) for key in KEYS[1:5]})
    assert len(syncs) == 1
    assert all(store.get(key, 1 << 20) == content(key) for key in KEYS[:5])


def test_a_killed_writer_has_written_what_it_acknowledged(tmp_path: Path) -> None:
    code = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}]
from concurrent.futures import ThreadPoolExecutor
from tests.test_packs import content
from rondo.directory import Directory
store = Directory({str(tmp_path)!r})
def put(i):
    key = f"runs/r/x{{i:06}}"
    store.put_packed({{key: content(key)}})
    os.write(1, key.encode() + b"\\n")
with ThreadPoolExecutor(8) as threads:
    list(threads.map(put, range(100000)))
"""
    acknowledged = []
    with ending(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)) as writer:
        assert writer.stdout
        for line in writer.stdout:
            acknowledged.append(line.strip())
            if len(acknowledged) == 60:
                os.kill(writer.pid, signal.SIGKILL)
    store = Directory(tmp_path)
    whole = [key for key in acknowledged if key.startswith("runs/r/x") and len(key) == 14]  # the last line may be cut
    assert len(whole) >= 60
    assert all(store.get(key, 1 << 20) == content(key) for key in whole)


def test_a_failed_write_fails_all_who_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Directory(tmp_path)
    store.put_packed({KEYS[0]: content(KEYS[0])})
    sync = os.fsync

    def fail(descriptor: int) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "fsync", fail)
    failed = []

    def put(key: str) -> None:
        try:
            store.put_packed({key: content(key)})
        except OSError:
            failed.append(key)

    threads = [threading.Thread(target=put, args=(key,)) for key in KEYS[1:9]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.setattr(os, "fsync", sync)
    assert sorted(failed) == KEYS[1:9]
    pack(store, KEYS[9:12])
    for fresh in (store, Directory(tmp_path)):
        assert all(fresh.get(key, 1 << 20) == content(key) for key in [KEYS[0], *KEYS[9:12]])
        assert all(fresh.stat(key) is None for key in KEYS[1:9])
