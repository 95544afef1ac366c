"""The blocking client: its thread, its end, and what interrupts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rondo

from .conftest import Plane, bring, ending

SCRIPT = """
import sys, rondo
with rondo.Feed(sys.argv[2], "trainer", dir=sys.argv[1]) as feed:
    try:
        print("waiting", flush=True)
        next(feed)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


def test_an_interrupt_ends_a_wait(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    command = [sys.executable, "-c", SCRIPT, str(plane.dir), run]
    waiting = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with ending(waiting) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 10
    assert out == "interrupted\n" and process.returncode in (-signal.SIGINT, 130, 1)
    assert "KeyboardInterrupt" in err and "destroyed" not in err


def test_a_program_that_just_ends_ends_quietly(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    bring(client, run, 1, 2)
    code = "import sys, rondo\nfeed = rondo.Feed(sys.argv[2], 'trainer', dir=sys.argv[1])\nprint(next(feed).step)"
    command = [sys.executable, "-W", "default", "-c", code, str(plane.dir), run]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_after_closing(plane: Plane) -> None:
    threads = threading.active_count()
    client = rondo.Client(plane.dir, wait=60)
    run = plane.open_run(client)
    client.close()
    assert threading.active_count() == threads
    with pytest.raises(rondo.RondoError, match="the client is closed"):
        client.config(run)
    client.close()  # once more does no harm


def test_a_forked_process_is_told(client: rondo.Client, plane: Plane) -> None:
    code = """
import os, sys, rondo, warnings
warnings.simplefilter("ignore")
client = rondo.Client(sys.argv[1], wait=60)
if os.fork() == 0:
    try:
        client.config("x")
    except rondo.RondoError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.wait()
"""
    command = [sys.executable, "-c", code, str(plane.dir)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=30)
    assert "before this process was forked" in done.stdout


def test_several_threads_share_a_client(client: rondo.Client, plane: Plane) -> None:
    run = plane.open_run(client)
    answers: list[rondo.Answer] = []
    threads = [threading.Thread(target=lambda i=i: answers.append(client.pause(run, str(i)))) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({a.sequence for a in answers}) == 8


def test_the_environment_names_a_plane(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RONDO_DIR", str(plane.dir))
    with rondo.Client() as client:
        run = plane.open_run(client)
    endpoint = (plane.dir / "endpoint.json").read_text()
    monkeypatch.delenv("RONDO_DIR")
    monkeypatch.setenv("RONDO_NATS", json.loads(endpoint)["nats"])
    monkeypatch.setenv("RONDO_STORE", str(plane.dir / "objects"))
    monkeypatch.chdir(plane.dir.parent)
    with rondo.Client() as client:
        assert client.config(run)["policy"] == f"policy-{run}"
